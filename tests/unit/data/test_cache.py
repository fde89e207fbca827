"""The data cache: entries, what makes them outdated, damage, full disks, changing files."""

import dataclasses
import errno
import os
from collections import namedtuple

import numpy as np
import pytest

from benchmarks.common.job import WITHIN_S
from hogbatch.data import cache as module
from hogbatch.data.cache import CacheForm, DataCache
from hogbatch.data.load import load
from hogbatch.data.order import Fractions
from hogbatch.data.raw import Columns
from hogbatch.data.stored import RAW_SETS
from hogbatch.errors import UsageError
from hogbatch.machine import budget
from tests.support.reading import packed, read, read_error, read_for_model
from tests.unit.data.conftest import LONG_AGO

Disk = namedtuple("Disk", "total used free")
BY, ORDERS = Columns(("b", "a"), "y", 0), [("a", "b"), ("b", "a")]
TEXTS = {
    "a.svm": b"1 1:2 5:0.1\n\n# nothing\n-1 2:3\n",
    "lists.svm": b"1,3 1:2\n 2:3\n7 9:-0.0\n",
    "a.xmc": b"2 30 40\n3,1 1:2\n 2:3\n",
    "a.csv": b"a,b,y\n1,2,0.1\n3,4,1e-3\n",
    "a.svm.gz": packed("a.svm.gz", "1 0:2\n-1 2:3\n"),
}


def entries(cache):
    return sorted(cache.directory.glob("*.hogdata"))


def flat(raw):
    """All fields of a RawSet, with arrays as (dtype, shape, bytes)."""
    parts = []
    for field in dataclasses.fields(raw):
        value = getattr(raw, field.name) if field.compare else None
        parts += value if isinstance(value, tuple) else [value]
    return [
        (part.dtype, part.shape, part.tobytes()) if isinstance(part, np.ndarray) else part
        for part in parts
    ]


@pytest.fixture
def table(old_file):
    """A CSV file that may be cached."""
    return old_file("a.csv", TEXTS["a.csv"])


@pytest.mark.parametrize("name", TEXTS)
def test_the_second_reading_gives_what_the_first_gave_to_the_bit(
    old_file, cache, messages, parsed, name
):
    path = old_file(name, TEXTS[name])
    plain, first, second = (read(path, each) for each in (None, cache, cache))
    assert flat(plain) == flat(first) == flat(second)
    written, from_cache = (line.split(" the cache")[0] for line in messages)
    assert (written, from_cache) == (f"{path}: written to", f"{path}: read from")
    assert len(parsed) == 2


def test_rows_from_the_cache_can_be_trained_on_and_are_located_by_the_name_they_are_read_under(
    old_file, cache, monkeypatch
):
    path = old_file("a.svm", TEXTS["a.svm"])
    first, second = (load(path, fractions=Fractions(0), cache=cache).fingerprint for _ in range(2))
    assert first == second == load(path, fractions=Fractions(0)).fingerprint
    assert read_for_model(path, 5, cache=cache).inputs.values.flags.writeable
    monkeypatch.chdir(path.parent)
    again = read("a.svm", cache)
    assert (again.locate(1), again.source) == ("a.svm:4", "a.svm")
    assert len(entries(cache)) == 1


@pytest.mark.parametrize(
    ("content", "moment"),
    [
        (b"1 1:9\n-1 2:3\n", LONG_AGO),  # by a copy that keeps the time
        (b"1 1:2 3:1\n-1 2:3\n", LONG_AGO + 1),
        (b"1 1:2\n-1 2:3\n", LONG_AGO + 5),  # only touched
    ],
)
def test_a_changed_file_is_read_again_and_its_entry_replaced(
    old_file, cache, parsed, monkeypatch, content, moment
):
    path = old_file("a.svm", b"1 1:2\n-1 2:3\n")
    read(path, cache)
    path.write_bytes(content)
    os.utime(path, (moment, moment))
    assert flat(read(path, cache)) == flat(read(path, cache)) == flat(read(path))
    assert len(parsed) == 3 and len(entries(cache)) == 1
    monkeypatch.setattr(module, "_readers", lambda: "another version")
    read(path, cache)
    assert len(parsed) == 4


@pytest.mark.parametrize(
    ("name", "options", "times"),
    [
        ("a.csv", [{"label": ("a",)}, {"label": ("b",)}, {}, {"features": 3}], 4),
        ("a.csv", [{"header": "yes"}, {}, {"columns": BY, "features": 2}], 2),
        ("a.csv", [{"columns": BY._replace(names=each), "features": 2} for each in ORDERS], 2),
        ("a.csv", [{"declared": 9}, {"index_base": 1}, {"threads": 2}, {}], 1),
        ("a.svm", [{"declared": 9}, {"header": "no"}, {}], 2),
        ("a.svm", [{"index_base": 0}, {"index_base": 1}, {}], 3),
        ("a.xmc", [{"index_base": 1}, {"features": 30}, {}], 1),
    ],
)
def test_options_that_change_what_is_read_have_entries_of_their_own(
    old_file, cache, parsed, name, options, times
):
    path = old_file(name, TEXTS[name])
    for each in options * 2:
        assert flat(read(path, cache, **each)) == flat(read(path, **each))
    assert len(entries(cache)) == times
    assert len(parsed) == times + 2 * len(options)


def test_files_that_are_read_fast_archives_and_mistakes_are_not_kept(
    old_file, table, tmp_path, cache, messages
):
    read(table, dataclasses.replace(cache, min_parse_s=60.0))
    np.savez(tmp_path / "a.npz", X=np.ones((2, 2)), y=np.ones(2))
    os.utime(tmp_path / "a.npz", (LONG_AGO, LONG_AGO))
    assert read(tmp_path / "a.npz", cache).rows == 2
    wrong = old_file("a.svm", b"1 1:2\n1 x\n")
    for _ in range(2):
        assert "a.svm:2:3: expected index:value" in read_error(wrong, cache)
    assert "no such file" in read_error(tmp_path / "gone.csv", cache)
    assert not cache.directory.exists() and messages == []


def test_where_the_cache_is(tmp_path, monkeypatch):
    monkeypatch.setenv("HOGBATCH_CACHE", str(tmp_path))
    assert DataCache.of("auto").directory == tmp_path / "data"
    assert DataCache.of("here/there").directory.parts == ("here", "there")
    assert DataCache.of("off") is None

    def nowhere():
        raise UsageError("got none")

    monkeypatch.setattr(module, "cache_root", nowhere)
    assert DataCache.of("auto") is None


def test_an_entry_with_bad_lines_serves_whoever_allows_as_many(old_file, cache, parsed):
    path = old_file("a.svm", b"1 1:2\n-1 2:x\n" + b"1 1:1\n" * 8)
    first, second = (read(path, cache, bad_lines=fraction) for fraction in (0.1, 0.5))
    assert flat(first) == flat(second)
    assert second.skipped.first[0].describe("a") == "a:2:6: expected a number; got 'x'"
    assert read_error(path, cache).endswith("a.svm:2:6: expected a number; got 'x'")
    assert "1 of 10 lines (10.00%)" in read_error(path, cache, bad_lines=0.05)
    assert parsed == [path]


def test_a_table_may_have_many_columns(old_file, cache, parsed):
    names = [f"a feature with the number {n}" for n in range(500)]
    row = ",".join(["1"] * 501)
    path = old_file("b.csv", ",".join([*names, "y"]).encode() + f"\n{row}\n{row}\n".encode())
    first, second = (read(path, cache) for _ in range(2))
    assert first.columns == second.columns == Columns(tuple(names), "y", 500)
    assert parsed == [path]


def damages(content):
    """The content of an entry with each kind of damage."""
    for place in {0, 3, 9, 40, len(content) // 2, len(content) - 1, content.index(b"\n") - 1}:
        yield content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
    for size in {0, 1, 8, 9, 100, content.index(b"\n") + 1, len(content) - 1}:
        yield content[:size]
    yield content[:-40] + bytes(40)  # as after a power cut
    assert b"'<f8'" in content
    yield content.replace(b"'<f8'", b"'|O' ")  # bytes as pointers to objects
    yield b"\xff" * 200_000
    yield b"{}\n"


def test_a_damaged_entry_is_parsed_again_and_replaced(table, cache, parsed):
    expected = flat(read(table, cache))
    (entry,) = entries(cache)
    whole = entry.read_bytes()
    for damaged in damages(whole):
        entry.write_bytes(damaged)
        before = len(parsed)
        assert flat(read(table, cache)) == expected
        assert len(parsed) == before or entry.read_bytes() == whole
    assert len(parsed) > 10  # a flipped bit in a field that nobody reads does no harm


def test_a_flipped_bit_never_changes_what_is_read_from_an_entry(table, cache):
    arrays = {"values": np.arange(3.0), "none": np.empty((0, 4))}
    plain = CacheForm(lambda content: ({}, content), lambda header, content: content)

    def stored():
        found = cache.read(table, {}, lambda: arrays, plain)
        return [(name, each.dtype, each.shape, each.tolist()) for name, each in found.items()]

    expected = stored()
    (entry,) = entries(cache)
    whole = entry.read_bytes()
    for place, byte in enumerate(whole):
        entry.write_bytes(whole[:place] + bytes([byte ^ 1]) + whole[place + 1 :])
        assert stored() == expected


def test_the_entry_of_another_file_is_not_used_and_entries_are_for_their_user_alone(
    old_file, table, cache
):
    other = old_file("b.csv", TEXTS["a.csv"].replace(b"3", b"8"))
    read(table, cache)
    (entry,) = entries(cache)
    assert cache.directory.stat().st_mode & 0o777 == 0o700
    assert entry.stat().st_mode & 0o777 == 0o600
    read(other, cache)
    (theirs,) = set(entries(cache)) - {entry}
    theirs.write_bytes(entry.read_bytes())
    assert read(other, cache).inputs.dense[1, 0] == 8
    os.replace(other, table)  # with the same size and time
    assert read(table, cache).inputs.dense[1, 0] == 8


def test_entries_of_files_that_are_gone_or_changed_and_unfinished_ones_are_removed(old_file, cache):
    gone, changed, stays, new = (old_file(f"{name}.csv", TEXTS["a.csv"]) for name in "abcd")
    for path in (gone, changed, stays):
        read(path, cache)
    gone.unlink()
    changed.write_bytes(b"1,2\n")
    names = ("of-the-user.txt", "new.hogdata-tmp", "old.hogdata-tmp")
    users, written, left = (cache.directory / name for name in names)
    for path in (users, written, left):
        path.touch()
    os.utime(left, (LONG_AGO, LONG_AGO))  # by a process that was killed
    read(new, cache)
    made_from = b"".join(entry.read_bytes() for entry in entries(cache))
    kept = [path for path in (gone, changed, stays, new) if str(path).encode() in made_from]
    assert kept == [stays, new]
    assert users.exists() and written.exists() and not left.exists()


def test_files_that_change_or_have_only_just_been_written_are_not_kept(
    write, old_file, table, cache, messages, monkeypatch
):
    def parse():
        raw = read(table)
        old_file("a.csv", TEXTS["a.csv"].replace(b"3", b"8"))
        return raw

    cache.read(table, {}, parse, RAW_SETS)
    monkeypatch.setattr(module, "CLOCK_TICK_NS", 10**9 * WITHIN_S)
    path = write("b.csv", TEXTS["a.csv"])
    read(path, cache)
    os.utime(path, (2 * LONG_AGO, 2 * LONG_AGO))  # in the future
    read(path, cache)
    assert entries(cache) == [] and messages == []


@pytest.mark.parametrize("total_gib, free_gib", [(5, 1), (50, 5), (2000, 10)])
def test_a_disk_that_is_full_or_cannot_be_written_is_one_line_and_no_error(
    table, cache, messages, monkeypatch, total_gib, free_gib
):
    for more, kept in ((0, 0), (1000, 1)):
        disk = Disk(total_gib << 30, 0, (free_gib << 30) + more)
        monkeypatch.setattr(module.shutil, "disk_usage", lambda path, disk=disk: disk)
        assert read(table, cache).rows == 2
        assert len(entries(cache)) == kept
    full = f"{table}: cannot write to the cache {cache.directory}: the disk is nearly full"
    assert messages[0] == full
    nowhere = dataclasses.replace(cache, directory=table / "data")
    assert read(table, nowhere).rows == 2
    assert messages[-1] == f"{table}: cannot write to the cache {table}/data: Not a directory"


@pytest.mark.parametrize("step", ["write", "rename"])
def test_an_entry_that_cannot_be_finished_leaves_nothing(table, cache, messages, monkeypatch, step):
    def full_file(dir, suffix):
        (dir / f"a{suffix}").touch()
        return os.open("/dev/full", os.O_WRONLY), dir / f"a{suffix}"

    def replace(source, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    if step == "write":
        monkeypatch.setattr(module.tempfile, "mkstemp", full_file)
    else:
        monkeypatch.setattr(module.os, "replace", replace)
    read(table, cache)
    assert list(cache.directory.iterdir()) == []
    assert messages[0].endswith("No space left on device") and len(messages) == 1


def test_memory_is_checked_before_an_entry_is_loaded(cache, old_file, monkeypatch):
    path = old_file("a.csv", b"1,2,3\n" * 5000)
    read(path, cache)
    monkeypatch.setattr(budget, "SMALL", 0)
    monkeypatch.setattr(budget, "memory_quota", lambda: None)
    monkeypatch.setattr(budget, "free_memory", lambda: 100_000)
    match = r"expected 12. kB of free memory for the rows of .*a\.csv; got 100 kB"
    with pytest.raises(UsageError, match=match):
        read(path, cache)
