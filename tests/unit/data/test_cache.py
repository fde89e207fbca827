import dataclasses
import os
import threading
from collections import namedtuple

import numpy as np
import pytest

from hogbatch.data import cache as module
from hogbatch.data.cache import DataCache
from hogbatch.data.load import inputs_for, load
from hogbatch.data.raw import Columns
from hogbatch.errors import DataError, UsageError
from tests.support.reading import read
from tests.unit.data.cache_files import LONG_AGO, TEXTS, entries, flat

BY, ORDERS = Columns(("b", "a"), "y", 0), [("a", "b"), ("b", "a")]
Disk = namedtuple("Disk", "total used free")


@pytest.mark.parametrize("name", TEXTS)
def test_the_second_reading_gives_what_the_first_gave_to_the_bit(old_file, cache, messages, name):
    path = old_file(name, TEXTS[name])
    plain, first, second = read(path), read(path, cache=cache), read(path, cache=cache)
    assert flat(plain) == flat(first) == flat(second)
    assert [line.split(" the cache")[0] for line in messages] == [
        f"{path}: written to",
        f"{path}: read from",
    ]


def test_what_is_kept_is_not_parsed_again(old_file, cache, parsed):
    path = old_file("a.csv", TEXTS["a.csv"])
    for _ in range(3):
        read(path, cache=cache)
    assert parsed == [path]
    assert len(entries(cache)) == 1


def test_a_set_from_the_cache_can_be_trained_on_and_used_as_any_other(old_file, cache):
    train, test = old_file("a.svm", TEXTS["a.svm"]), old_file("t.svm", b"1 2:3\n")
    for settings in ({}, {"test": test}, {"scale": "standard"}, {"loss": "multilabel"}):
        if "loss" in settings:
            train = old_file("a.xmc", TEXTS["a.xmc"])
        first, second, plain = (
            load(train, test_fraction=0, cache=each, **settings) for each in (cache, cache, None)
        )
        assert first.fingerprint == second.fingerprint == plain.fingerprint
    assert inputs_for(test, 5, cache=cache).inputs.values.flags.writeable


def test_a_row_is_located_in_its_text_file_by_the_name_it_is_read_under(
    old_file, cache, monkeypatch
):
    path = old_file("a.svm", TEXTS["a.svm"])
    read(path, cache=cache)
    monkeypatch.chdir(path.parent)
    again = read("a.svm", cache=cache)
    assert len(entries(cache)) == 1
    assert (again.locate(1), again.source) == ("a.svm:4", "a.svm")


@pytest.mark.parametrize("content", [b"1 1:9\n-1 2:3\n", b"1 1:2 3:1\n-1 2:3\n"])
@pytest.mark.parametrize("hidden", [False, True])
def test_a_changed_file_is_read_again_and_its_entry_replaced(old_file, cache, content, hidden):
    path = old_file("a.svm", b"1 1:2\n-1 2:3\n")
    read(path, cache=cache)
    path.write_bytes(content)
    moment = LONG_AGO if hidden else LONG_AGO + 1  # hidden: as by a copy that keeps the time
    os.utime(path, (moment, moment))
    assert flat(read(path, cache=cache)) == flat(read(path))
    assert flat(read(path, cache=cache)) == flat(read(path))
    assert len(entries(cache)) == 1


def test_a_touched_file_is_read_again(old_file, cache, parsed):
    path = old_file("a.csv", TEXTS["a.csv"])
    read(path, cache=cache)
    os.utime(path, (LONG_AGO + 5, LONG_AGO + 5))
    read(path, cache=cache)
    assert parsed == [path, path]


def test_a_file_put_in_the_place_of_another_is_read(old_file, cache):
    path = old_file("a.csv", TEXTS["a.csv"])
    read(path, cache=cache)
    other = old_file("b.csv", TEXTS["a.csv"].replace(b"3", b"8"))
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
    old_file, cache, parsed, name, options, times
):
    path = old_file(name, TEXTS[name])
    for each in options * 2:
        assert flat(read(path, cache=cache, **each)) == flat(read(path, **each))
    assert len(entries(cache)) == times
    assert len(parsed) == times + 2 * len(options)


def test_another_version_of_the_readers_does_not_use_an_entry(old_file, cache, parsed, monkeypatch):
    path = old_file("a.csv", TEXTS["a.csv"])
    read(path, cache=cache)
    monkeypatch.setattr(module, "_readers", lambda: "another")
    read(path, cache=cache)
    assert parsed == [path, path]


def test_entries_are_for_their_user_alone(old_file, cache):
    read(old_file("a.csv", TEXTS["a.csv"]), cache=cache)
    assert cache.directory.stat().st_mode & 0o777 == 0o700
    assert [entry.stat().st_mode & 0o777 for entry in entries(cache)] == [0o600]


def test_a_file_that_is_read_fast_is_not_kept(old_file, cache, messages):
    cache = dataclasses.replace(cache, min_parse_s=60.0)
    read(old_file("a.csv", TEXTS["a.csv"]), cache=cache)
    assert not cache.directory.exists() and messages == []


def test_a_pipe_is_read_and_not_kept(tmp_path, cache):
    path = tmp_path / "a.csv"
    os.mkfifo(path)
    assert module._origin(path, {}) is None
    writer = threading.Thread(target=path.write_bytes, args=(TEXTS["a.csv"],))
    writer.start()
    assert read(path, cache=cache).rows == 2
    writer.join()
    assert entries(cache) == []


def test_mistakes_are_found_at_their_place_as_ever(old_file, cache, tmp_path):
    for _ in range(2):
        with pytest.raises(DataError, match=r"a\.svm:2:3: expected index:value"):
            read(old_file("a.svm", b"1 1:2\n1 x\n"), cache=cache)
    with pytest.raises(DataError, match="no such file"):
        read(tmp_path / "gone.csv", cache=cache)
    assert entries(cache) == []


def test_archives_are_not_kept(tmp_path, cache, messages):
    np.savez(tmp_path / "a.npz", X=np.ones((2, 2)), y=np.ones(2))
    os.utime(tmp_path / "a.npz", (LONG_AGO, LONG_AGO))
    assert read(tmp_path / "a.npz", cache=cache).rows == 2
    assert messages == []


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


def test_an_entry_with_bad_lines_serves_whoever_allows_as_many(old_file, cache, parsed):
    path = old_file("a.svm", b"1 1:2\n-1 2:x\n" + b"1 1:1\n" * 8)
    with pytest.raises(DataError, match=r"a\.svm:2:6: expected a number"):
        read(path, cache=cache)
    assert entries(cache) == []
    first, second = (read(path, bad_lines=fraction, cache=cache) for fraction in (0.1, 0.5))
    assert flat(first) == flat(second)
    assert second.skipped.first[0].describe("a") == "a:2:6: expected a number; got 'x'"
    with pytest.raises(DataError, match=r"a\.svm:2:6: expected a number; got 'x'$"):
        read(path, cache=cache)
    with pytest.raises(DataError, match=r"1 of 10 lines \(10\.00%\)"):
        read(path, bad_lines=0.05, cache=cache)
    assert parsed == [path, path]


def test_names_and_notes_come_from_an_entry_however_many(old_file, cache, parsed):
    names = [f"a feature with the number {n}" for n in range(5000)]
    row = ",".join(["1"] * 5001)
    path = old_file("a.csv", ",".join([*names, "y"]).encode() + f"\n{row}\n{row}\n".encode())
    first, second = (read(path, cache=cache) for _ in range(2))
    assert first.columns == second.columns == Columns(tuple(names), "y", 5000)
    numbers = old_file("b.csv", b"0,1,2\n1,2,3\n")
    first, second = (read(numbers, cache=cache) for _ in range(2))
    assert first.messages == second.messages and len(second.messages) == 1
    assert parsed == [path, numbers]


def test_names_of_labels_come_from_an_entry(old_file, cache):
    path = old_file("a.csv", TEXTS["a.csv"])
    raw = dataclasses.replace(read(path), label_names=("é", "b"))
    for _ in range(2):
        assert cache.read(path, {}, lambda: raw).label_names == ("é", "b")
    assert len(entries(cache)) == 1
