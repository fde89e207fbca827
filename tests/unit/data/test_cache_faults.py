"""Faults and limits of the data cache: damaged entries, full disks, changing files."""

import errno
import os
from collections import namedtuple

import numpy as np
import pytest

from benchmarks.common.job import WITHIN_S
from hogbatch.data import cache as module
from hogbatch.data.cache import DataCache
from hogbatch.errors import UsageError
from hogbatch.machine import budget
from tests.support.reading import read
from tests.unit.data.cache_files import LONG_AGO, TEXTS, entries, flat

Disk = namedtuple("Disk", "total used free")


def damages(content):
    """The content of an entry with each kind of damage."""
    for place in {0, 3, 9, 40, len(content) // 2, len(content) - 1, content.index(b"\n") - 1}:
        yield content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
    for size in {0, 1, 8, 9, 100, content.index(b"\n") + 1, len(content) - 1}:
        yield content[:size]
    yield content[:-40] + bytes(40)  # as after a power cut
    yield b"\xff" * 200_000
    yield b"{}\n"


def test_a_damaged_entry_is_parsed_again_and_replaced(old_file, cache, parsed):
    path = old_file("a.svm", TEXTS["a.svm"])
    expected = flat(read(path, cache=cache))
    (entry,) = entries(cache)
    whole = entry.read_bytes()
    for times, damaged in enumerate(damages(whole), 2):
        entry.write_bytes(damaged)
        assert flat(read(path, cache=cache)) == expected
        assert len(parsed) == times
        assert entry.read_bytes() == whole


def test_memory_that_happens_to_hold_the_array_does_not_stand_for_the_file(
    old_file, cache, parsed, monkeypatch
):
    path = old_file("a.csv", TEXTS["a.csv"])
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


def test_the_entry_of_another_file_is_not_used(old_file, cache):
    one, other = (
        old_file("a.csv", TEXTS["a.csv"]),
        old_file("b.csv", TEXTS["a.csv"].replace(b"3", b"8")),
    )
    read(one, cache=cache)
    (entry,) = entries(cache)
    content = entry.read_bytes()
    read(other, cache=cache)
    (theirs,) = set(entries(cache)) - {entry}
    theirs.write_bytes(content)
    assert read(other, cache=cache).inputs.dense[1, 0] == 8


def test_entries_of_files_that_are_gone_or_changed_are_removed(old_file, cache):
    gone, changed, stays, new = (old_file(f"{name}.csv", TEXTS["a.csv"]) for name in "abcd")
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


def test_what_a_killed_process_has_left_is_removed_and_what_is_being_written_stays(old_file, cache):
    cache.directory.mkdir(parents=True)
    left, written = (cache.directory / f"{name}.hogdata-tmp" for name in ("left", "written"))
    left.touch()
    written.touch()
    os.utime(left, (LONG_AGO, LONG_AGO))
    read(old_file("a.csv", TEXTS["a.csv"]), cache=cache)
    assert not left.exists() and written.exists()


def test_a_file_that_has_only_just_been_written_is_not_kept(write, cache, messages, monkeypatch):
    monkeypatch.setattr(module, "CLOCK_TICK_NS", 10**9 * WITHIN_S)
    path = write("a.csv", TEXTS["a.csv"])
    assert read(path, cache=cache).rows == 2
    os.utime(path, (2 * LONG_AGO, 2 * LONG_AGO))  # in the future
    assert read(path, cache=cache).rows == 2
    assert entries(cache) == [] and messages == []


def test_a_file_that_changes_while_it_is_read_is_not_kept(old_file, cache):
    path = old_file("a.csv", TEXTS["a.csv"])

    def parse():
        raw = read(path)
        old_file("a.csv", TEXTS["a.csv"].replace(b"3", b"8"))
        return raw

    cache.read(path, {}, parse)
    assert entries(cache) == []


def test_a_cache_that_cannot_be_written_is_one_line_and_no_error(old_file, tmp_path, messages):
    path = old_file("a.csv", TEXTS["a.csv"])
    (tmp_path / "file").touch()
    cache = DataCache(tmp_path / "file" / "data", messages.append, min_parse_s=0.0)
    assert read(path, cache=cache).rows == 2
    directory = tmp_path / "file" / "data"
    assert messages == [f"{path}: cannot write to the cache {directory}: Not a directory"]


@pytest.mark.parametrize("free", [module.MIN_FREE_BYTES, 10 * module.MIN_FREE_BYTES])
def test_a_disk_is_not_filled(old_file, cache, messages, monkeypatch, free):
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: Disk(free * 10, 0, free))
    path = old_file("a.csv", TEXTS["a.csv"])
    assert read(path, cache=cache).rows == 2
    assert entries(cache) == []
    assert messages == [
        f"{path}: cannot write to the cache {cache.directory}: the disk is nearly full"
    ]
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: Disk(free * 10, 0, free + 1000))
    read(path, cache=cache)
    assert len(entries(cache)) == 1


@pytest.mark.parametrize("step", ["write", "rename"])
def test_an_entry_that_cannot_be_finished_leaves_nothing(
    old_file, cache, messages, monkeypatch, step
):
    def full_file(dir, suffix):
        (dir / f"a{suffix}").touch()
        return os.open("/dev/full", os.O_WRONLY), dir / f"a{suffix}"

    def replace(source, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    if step == "write":
        monkeypatch.setattr(module.tempfile, "mkstemp", full_file)
    else:
        monkeypatch.setattr(module.os, "replace", replace)
    read(old_file("a.csv", TEXTS["a.csv"]), cache=cache)
    assert list(cache.directory.iterdir()) == []
    assert messages[0].endswith("No space left on device") and len(messages) == 1


def test_memory_is_checked_before_an_entry_is_loaded(cache, old_file, monkeypatch):
    path = old_file("a.csv", b"1,2,3\n" * 5000)
    read(path, cache=cache)
    monkeypatch.setattr(budget, "memory_quota", lambda: None)
    monkeypatch.setattr(budget, "free_memory", lambda: 100_000)
    match = r"expected 160 kB of free memory for the rows of .*a\.csv; got 100 kB"
    with pytest.raises(UsageError, match=match):
        read(path, cache=cache)
    monkeypatch.setattr(budget, "free_memory", lambda: 10**6)
    assert read(path, cache=cache).rows == 5000
