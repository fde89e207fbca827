import dataclasses
import errno
import gzip
import os
import threading
from collections import namedtuple

import numpy as np
import pytest

from hogbatch.data import cache as module, csv, libsvm, xmc
from hogbatch.data.cache import DataCache
from hogbatch.data.load import inputs_for, load
from hogbatch.data.raw import Columns
from hogbatch.data.readers import CONCERNED, READERS, read
from hogbatch.errors import DataError, UsageError
from hogbatch.machine import budget

BY, ORDERS = Columns(("b", "a"), "y", 0), [("a", "b"), ("b", "a")]
LONG_AGO = 1_000_000_000  # Unix seconds: when files were last changed, if not said otherwise
Disk = namedtuple("Disk", "total used free")
TEXTS = {
    "a.svm": b"1 1:2 5:0.1\n\n# nothing\n-1 2:3\n",
    "lists.svm": b"1,3 1:2\n 2:3\n7 9:-0.0\n",
    "a.xmc": b"2 30 40\n3,1 1:2\n 2:3\n",
    "a.csv": b"a,b,y\n1,2,0.1\n3,4,1e-3\n",
    "a.svm.gz": gzip.compress(b"1 0:2\n-1 2:3\n"),
    "a.txt": b"1 1:2\n-1 2:3\n",
}


@pytest.fixture
def old(write):
    """Writes a file, and makes it look as if that had been long ago."""

    def old(name, content):
        path = write(name, content)
        os.utime(path, (LONG_AGO, LONG_AGO))
        return path

    return old


@pytest.fixture
def said():
    """What the cache has said."""
    return []


@pytest.fixture
def cache(tmp_path, said):
    """A cache that keeps whatever it can."""
    return DataCache(tmp_path / "cache" / "data", said.append, slow_s=0.0)


@pytest.fixture
def parsed(monkeypatch):
    """The paths that were parsed, in order."""
    paths = []

    def watched(reader):
        def parse(path, options):
            paths.append(path.path)
            return reader(path, options)

        return parse

    for reader in (libsvm.read, xmc.read, csv.read):
        watching = watched(reader)
        monkeypatch.setitem(CONCERNED, watching, CONCERNED[reader])
        for ending, usual in READERS.items():
            if usual is reader:
                monkeypatch.setitem(READERS, ending, watching)
    return paths


def entries(cache):
    return sorted(cache.directory.glob("*.hogdata"))


def flat(raw):
    """All that a RawSet holds, arrays as (type, shape, bytes)."""
    values = [getattr(raw, field.name) for field in dataclasses.fields(raw)]
    parts = []
    for value in values:
        parts += value if isinstance(value, tuple) else [value]
    return [
        (part.dtype, part.shape, part.tobytes()) if isinstance(part, np.ndarray) else part
        for part in parts
    ]


@pytest.mark.parametrize("name", TEXTS)
def test_the_second_reading_gives_what_the_first_gave_to_the_bit(old, cache, said, name):
    path = old(name, TEXTS[name])
    plain, first, second = read(path), read(path, cache=cache), read(path, cache=cache)
    assert flat(plain) == flat(first) == flat(second)
    assert [line.split(" the cache")[0] for line in said] == [
        f"{path}: kept in",
        f"{path}: read from",
    ]


def test_what_is_kept_is_not_parsed_again(old, cache, parsed):
    path = old("a.csv", TEXTS["a.csv"])
    for _ in range(3):
        read(path, cache=cache)
    assert parsed == [path]
    assert len(entries(cache)) == 1


def test_a_set_from_the_cache_can_be_trained_on_and_used_as_any_other(old, cache):
    train, test = old("a.svm", TEXTS["a.svm"]), old("t.svm", b"1 2:3\n")
    for settings in ({}, {"test": test}, {"scale": "standard"}, {"loss": "multilabel"}):
        if "loss" in settings:
            train = old("a.xmc", TEXTS["a.xmc"])
        first, second, plain = (
            load(train, test_fraction=0, cache=each, **settings) for each in (cache, cache, None)
        )
        assert first.fingerprint == second.fingerprint == plain.fingerprint
    assert inputs_for(test, 5, cache=cache).inputs.values.flags.writeable


def test_a_row_is_located_in_its_text_file_by_the_name_it_is_read_under(old, cache, monkeypatch):
    path = old("a.svm", TEXTS["a.svm"])
    read(path, cache=cache)
    monkeypatch.chdir(path.parent)
    again = read("a.svm", cache=cache)
    assert len(entries(cache)) == 1
    assert (again.locate(1), again.source) == ("a.svm:4", "a.svm")


@pytest.mark.parametrize("content", [b"1 1:9\n-1 2:3\n", b"1 1:2 3:1\n-1 2:3\n"])
@pytest.mark.parametrize("hidden", [False, True])
def test_a_changed_file_is_read_again_and_its_entry_replaced(old, cache, content, hidden):
    path = old("a.svm", b"1 1:2\n-1 2:3\n")
    read(path, cache=cache)
    path.write_bytes(content)
    moment = LONG_AGO if hidden else LONG_AGO + 1  # hidden: as by a copy that keeps the time
    os.utime(path, (moment, moment))
    assert flat(read(path, cache=cache)) == flat(read(path))
    assert flat(read(path, cache=cache)) == flat(read(path))
    assert len(entries(cache)) == 1


def test_a_touched_file_is_read_again(old, cache, parsed):
    path = old("a.csv", TEXTS["a.csv"])
    read(path, cache=cache)
    os.utime(path, (LONG_AGO + 5, LONG_AGO + 5))
    read(path, cache=cache)
    assert parsed == [path, path]


def test_a_file_put_in_the_place_of_another_is_read(old, cache):
    path = old("a.csv", TEXTS["a.csv"])
    read(path, cache=cache)
    other = old("b.csv", TEXTS["a.csv"].replace(b"3", b"8"))
    os.replace(other, path)
    assert read(path, cache=cache).inputs.dense[1, 0] == 8


@pytest.mark.parametrize(
    ("name", "options", "times"),
    [
        ("a.csv", [{"label": "a"}, {"label": "b"}, {"label": None}, {"features": 3}], 4),
        ("a.csv", [{"header": "yes"}, {}, {"columns": BY, "features": 2}], 3),
        ("a.csv", [{"columns": BY._replace(names=each), "features": 2} for each in ORDERS], 2),
        ("a.csv", [{"declared": 9}, {}], 1),
        ("a.svm", [{"declared": 9}, {"header": "no"}, {}], 2),
        ("a.csv", [{"index_base": 1}, {"threads": 2}, {}], 1),
        ("a.svm", [{"index_base": 0}, {"index_base": 1}, {}], 3),
        ("a.svm", [{"label": "a"}, {"features": 9}, {"threads": 1}, {}], 1),
        ("a.xmc", [{"index_base": 1}, {"features": 30}, {}], 1),
    ],
)
def test_options_that_change_what_is_read_have_entries_of_their_own(
    old, cache, parsed, name, options, times
):
    path = old(name, TEXTS[name])
    for each in options * 2:
        assert flat(read(path, cache=cache, **each)) == flat(read(path, **each))
    assert len(entries(cache)) == times
    assert len(parsed) == times + 2 * len(options)


def test_another_version_of_the_readers_does_not_use_an_entry(old, cache, parsed, monkeypatch):
    path = old("a.csv", TEXTS["a.csv"])
    read(path, cache=cache)
    monkeypatch.setattr(module, "_readers", lambda: "another")
    read(path, cache=cache)
    assert parsed == [path, path]


def damages(content):
    """The content of an entry, damaged in every way."""
    for place in {0, 3, 9, 40, len(content) // 2, len(content) - 1, content.index(b"\n") - 1}:
        yield content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
    for size in {0, 1, 8, 9, 100, content.index(b"\n") + 1, len(content) - 1}:
        yield content[:size]
    yield content[:-40] + bytes(40)  # as after a power cut
    yield b"\xff" * 200_000
    yield b"{}\n"


def test_a_damaged_entry_is_parsed_again_and_replaced(old, cache, parsed):
    path = old("a.svm", TEXTS["a.svm"])
    expected = flat(read(path, cache=cache))
    (entry,) = entries(cache)
    whole = entry.read_bytes()
    for times, damaged in enumerate(damages(whole), 2):
        entry.write_bytes(damaged)
        assert flat(read(path, cache=cache)) == expected
        assert len(parsed) == times
        assert entry.read_bytes() == whole


def test_memory_that_happens_to_hold_the_array_does_not_stand_for_the_file(
    old, cache, parsed, monkeypatch
):
    path = old("a.csv", TEXTS["a.csv"])
    raw = read(path, cache=cache)
    (entry,) = entries(cache)
    os.truncate(entry, entry.stat().st_size - 1)
    remembered = {array.shape: array for array in (raw.inputs.dense, raw.labels, raw.lines)}

    class Numpy:  # gives memory back with what was in it
        def __getattr__(self, name):
            return getattr(np, name)

        def empty(self, shape, dtype):
            same = remembered.get(tuple(shape))
            return np.empty(shape, dtype) if same is None else np.array(same)

    monkeypatch.setattr(module, "np", Numpy())
    read(path, cache=cache)
    assert len(parsed) == 2


def test_the_entry_of_another_file_is_not_used(old, cache):
    one, other = old("a.csv", TEXTS["a.csv"]), old("b.csv", TEXTS["a.csv"].replace(b"3", b"8"))
    read(one, cache=cache)
    (entry,) = entries(cache)
    content = entry.read_bytes()
    read(other, cache=cache)
    (theirs,) = set(entries(cache)) - {entry}
    theirs.write_bytes(content)
    assert read(other, cache=cache).inputs.dense[1, 0] == 8


def test_entries_of_files_that_are_gone_or_changed_are_removed(old, cache):
    gone, changed, stays, new = (old(f"{name}.csv", TEXTS["a.csv"]) for name in "abcd")
    for path in (gone, changed, stays):
        read(path, cache=cache)
    gone.unlink()
    changed.write_bytes(b"1,2\n")
    (cache.directory / "of-the-user.txt").write_text("stays")
    read(new, cache=cache)
    made_from = b"".join(entry.read_bytes() for entry in entries(cache))
    assert [str(path).encode() in made_from for path in (gone, changed, stays, new)] == [
        *(False, False, True, True)
    ]
    assert (cache.directory / "of-the-user.txt").exists()


def test_what_a_killed_process_has_left_is_removed_and_what_is_being_written_stays(old, cache):
    cache.directory.mkdir(parents=True)
    left, written = (cache.directory / f"{name}.hogdata-tmp" for name in ("left", "written"))
    left.touch()
    written.touch()
    os.utime(left, (LONG_AGO, LONG_AGO))
    read(old("a.csv", TEXTS["a.csv"]), cache=cache)
    assert not left.exists() and written.exists()


def test_entries_are_for_their_user_alone(old, cache):
    read(old("a.csv", TEXTS["a.csv"]), cache=cache)
    assert cache.directory.stat().st_mode & 0o777 == 0o700
    assert [entry.stat().st_mode & 0o777 for entry in entries(cache)] == [0o600]


def test_a_file_that_is_read_fast_is_not_kept(old, cache, said):
    cache = dataclasses.replace(cache, slow_s=60.0)
    read(old("a.csv", TEXTS["a.csv"]), cache=cache)
    assert not cache.directory.exists() and said == []


def test_a_file_that_has_only_just_been_written_is_not_kept(write, cache, said):
    path = write("a.csv", TEXTS["a.csv"])
    assert read(path, cache=cache).rows == 2
    os.utime(path, (2 * LONG_AGO, 2 * LONG_AGO))  # in the future
    assert read(path, cache=cache).rows == 2
    assert entries(cache) == [] and said == []


def test_a_file_that_changes_while_it_is_read_is_not_kept(old, cache):
    path = old("a.csv", TEXTS["a.csv"])

    def parse():
        raw = read(path)
        old("a.csv", TEXTS["a.csv"].replace(b"3", b"8"))
        return raw

    cache.read(path, {}, parse)
    assert entries(cache) == []


def test_a_pipe_is_read_and_not_kept(tmp_path, cache):
    path = tmp_path / "a.csv"
    os.mkfifo(path)
    assert module._origin(path, {}) is None
    writer = threading.Thread(target=path.write_bytes, args=(TEXTS["a.csv"],))
    writer.start()
    assert read(path, cache=cache).rows == 2
    writer.join()
    assert entries(cache) == []


def test_mistakes_are_found_at_their_place_as_ever(old, cache, tmp_path):
    for _ in range(2):
        with pytest.raises(DataError, match=r"a\.svm:2:3: expected index:value"):
            read(old("a.svm", b"1 1:2\n1 x\n"), cache=cache)
    with pytest.raises(DataError, match="no such file"):
        read(tmp_path / "gone.csv", cache=cache)
    assert entries(cache) == []


def test_archives_are_not_kept(tmp_path, cache, said):
    np.savez(tmp_path / "a.npz", X=np.ones((2, 2)), y=np.ones(2))
    os.utime(tmp_path / "a.npz", (LONG_AGO, LONG_AGO))
    assert read(tmp_path / "a.npz", cache=cache).rows == 2
    assert said == []


def test_a_cache_that_cannot_be_written_is_one_line_and_no_error(old, tmp_path, said):
    path = old("a.csv", TEXTS["a.csv"])
    (tmp_path / "file").touch()
    cache = DataCache(tmp_path / "file" / "data", said.append, slow_s=0.0)
    assert read(path, cache=cache).rows == 2
    directory = tmp_path / "file" / "data"
    assert said == [f"{path}: cannot be kept in the cache {directory}: Not a directory"]


@pytest.mark.parametrize("free", [module.FREE_BYTES, 10 * module.FREE_BYTES])
def test_a_disk_is_not_filled(old, cache, said, monkeypatch, free):
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: Disk(free * 10, 0, free))
    path = old("a.csv", TEXTS["a.csv"])
    assert read(path, cache=cache).rows == 2
    assert entries(cache) == []
    assert said == [
        f"{path}: cannot be kept in the cache {cache.directory}: the disk is nearly full"
    ]
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: Disk(free * 10, 0, free + 1000))
    read(path, cache=cache)
    assert len(entries(cache)) == 1


@pytest.mark.parametrize("step", ["write", "rename"])
def test_an_entry_that_cannot_be_finished_leaves_nothing(old, cache, said, monkeypatch, step):
    def full_file(dir, suffix):
        (dir / f"a{suffix}").touch()
        return os.open("/dev/full", os.O_WRONLY), dir / f"a{suffix}"

    def replace(source, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    if step == "write":
        monkeypatch.setattr(module.tempfile, "mkstemp", full_file)
    else:
        monkeypatch.setattr(module.os, "replace", replace)
    read(old("a.csv", TEXTS["a.csv"]), cache=cache)
    assert list(cache.directory.iterdir()) == []
    assert said[0].endswith("No space left on device") and len(said) == 1


def test_where_the_cache_is(tmp_path, monkeypatch):
    monkeypatch.setenv("HOGBATCH_CACHE", str(tmp_path))
    assert DataCache.of("auto").directory == tmp_path / "data"
    assert DataCache.of("here/there").directory.parts == ("here", "there")
    assert DataCache.of("off") is None


def test_without_a_directory_that_can_be_written_there_is_no_cache(monkeypatch):
    def nowhere():
        raise UsageError("got none")

    monkeypatch.setattr(module, "cache_root", nowhere)
    assert DataCache.of("auto") is None


def test_an_entry_with_bad_lines_serves_whoever_allows_as_many(old, cache, parsed):
    path = old("a.svm", b"1 1:2\n-1 2:x\n" + b"1 1:1\n" * 8)
    with pytest.raises(DataError, match=r"a\.svm:2:6: expected a number"):
        read(path, cache=cache)
    assert entries(cache) == []
    first, second = (read(path, bad_lines=fraction, cache=cache) for fraction in (0.1, 0.5))
    assert flat(first) == flat(second)
    assert second.skipped.first[0].where("a") == "a:2:6: expected a number; got 'x'"
    with pytest.raises(DataError, match=r"a\.svm:2:6: expected a number; got 'x'$"):
        read(path, cache=cache)
    with pytest.raises(DataError, match=r"1 of 10 lines \(10\.00%\)"):
        read(path, bad_lines=0.05, cache=cache)
    assert parsed == [path, path]


def test_names_and_notes_come_from_an_entry_however_many(old, cache, parsed):
    names = [f"a feature with the number {n}" for n in range(5000)]
    row = ",".join(["1"] * 5001)
    path = old("a.csv", ",".join([*names, "y"]).encode() + f"\n{row}\n{row}\n".encode())
    first, second = (read(path, cache=cache) for _ in range(2))
    assert first.columns == second.columns == Columns(tuple(names), "y", 5000)
    numbers = old("b.csv", b"0,1,2\n1,2,3\n")
    first, second = (read(numbers, cache=cache) for _ in range(2))
    assert first.messages == second.messages and len(second.messages) == 1
    assert parsed == [path, numbers]


def test_memory_is_checked_before_an_entry_is_loaded(cache, old, monkeypatch):
    path = old("a.csv", b"1,2,3\n" * 5000)
    read(path, cache=cache)
    monkeypatch.setattr(budget, "memory_quota", lambda: None)
    monkeypatch.setattr(budget, "free_memory", lambda: 100_000)
    match = r"expected 160 kB of free memory for the rows of .*a\.csv; got 100 kB"
    with pytest.raises(UsageError, match=match):
        read(path, cache=cache)
    monkeypatch.setattr(budget, "free_memory", lambda: 10**6)
    assert read(path, cache=cache).rows == 5000
