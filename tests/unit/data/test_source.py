import gzip
import os
import threading

import numpy as np
import pytest

from hogbatch.data import source
from hogbatch.data.cache import DataCache
from hogbatch.data.load import load
from hogbatch.data.source import Source, plain_name, shown
from hogbatch.errors import DataError, UsageError
from hogbatch.machine import budget
from tests.support.descriptors import open_descriptors
from tests.support.reading import read

TABLE = b"a,b,y\n1,2,0\n3,4,1\n"


@pytest.fixture
def pipe(tmp_path):
    """A named pipe with a writer, which stops when the reader closes it."""
    writers = {}

    def pipe(name, content, times=1):
        path = tmp_path / name
        os.mkfifo(path)

        def write():
            try:
                with path.open("wb", 0) as file:
                    for _ in range(times):
                        file.write(content)
            except BrokenPipeError:
                pass

        writers[path] = threading.Thread(target=write)
        writers[path].start()
        return path

    pipe.writers = writers
    yield pipe
    for path, writer in writers.items():
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))  # if the test has not opened it
        writer.join()


@pytest.mark.parametrize("name", ["a.csv", "a", "a.tsv"])
def test_a_pipe_is_read_as_a_file_is(pipe, name):
    content = TABLE.replace(b",", b"\t") if name == "a.tsv" else TABLE
    before = open_descriptors()
    raw = read(path := pipe(name, content))
    assert raw.rows == 2
    assert raw.source == str(path)
    assert open_descriptors() <= before


def test_a_pipe_may_be_compressed_or_hold_arrays(pipe, tmp_path):
    assert read(pipe("a", gzip.compress(TABLE))).rows == 2
    np.savez(tmp_path / "b.npz", X=np.eye(3), y=np.arange(3))
    assert read(pipe("b", (tmp_path / "b.npz").read_bytes())).rows == 3


def test_a_mistake_in_a_pipe_is_placed(pipe):
    path = pipe("a.csv", TABLE + b"1,x,0\n")
    with pytest.raises(DataError, match=r"/a\.csv:4:3: .*got 'x'"):
        read(path)


def test_rows_of_a_pipe_with_other_labels_are_named(pipe):
    path = pipe("a.svm", b"1 1:1\n1,2 1:1\n2,3 2:1\n0.5 1:1\n")
    with pytest.raises(DataError, match=r"/a\.svm:4:1: labels are lists in this file"):
        read(path)


def test_a_stream_is_not_kept_in_the_cache(pipe, tmp_path):
    read(pipe("a.csv", TABLE), cache=DataCache(tmp_path / "cache", min_parse_s=0.0))
    assert not (tmp_path / "cache").exists()


def test_a_path_that_means_another_file_in_the_next_run_is_not_kept_in_the_cache(tmp_path):
    (tmp_path / "b.csv").write_bytes(TABLE)
    os.utime(tmp_path / "b.csv", (1, 1))
    cache = DataCache(tmp_path / "cache", min_parse_s=0.0)
    with open(tmp_path / "b.csv", "rb") as file:
        for folder in ("/dev/fd", "/proc/self/fd"):
            assert read(f"{folder}/{file.fileno()}", cache=cache).rows == 2
    assert not (tmp_path / "cache").exists()
    assert read(tmp_path / "b.csv", cache=cache).rows == 2
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_a_stream_that_is_no_text_is_refused_at_once(pipe):
    with pytest.raises(DataError, match=r"/dev/zero: .*zero bytes only"):
        read("/dev/zero")
    with pytest.raises(DataError, match=r"/dev/urandom: .*binary data of an unknown type"):
        read("/dev/urandom")
    with pytest.raises(DataError, match="/dev/null is empty"):
        read("/dev/null")
    with pytest.raises(DataError, match=r"a\.csv: expected text .*got an HDF5 file"):
        read(pipe("a.csv", b"\x89HDF\r\n\x1a\n" + b"1" * 10**6, times=10**6))


def test_a_stream_without_lines_is_refused(pipe, monkeypatch):
    monkeypatch.setattr(source, "MAX_LINE_BYTES", 10**6)
    with pytest.raises(DataError, match=r"a\.csv: expected lines of up to 1 MB; got a longer line"):
        read(pipe("a.csv", b"1" * 10**6, times=10**6))


def test_a_stream_without_an_end_is_refused_when_memory_is_short(pipe, monkeypatch):
    monkeypatch.setattr(budget, "memory_quota", lambda: None)
    left = iter(range(4 * 10**8, 0, -(10**8)))
    monkeypatch.setattr(budget, "free_memory", lambda: next(left, 0))
    match = r"expected 67\.1 MB of free memory for .*a\.csv, after 1\d\d MB; got .*: save it as"
    before = open_descriptors()
    path = pipe("a.csv", TABLE * 10**4, times=10**6)
    with pytest.raises(UsageError, match=match):
        read(path)
    pipe.writers[path].join()  # its end of the pipe is a file of this process too
    assert open_descriptors() <= before


def test_standard_input_cannot_be_both_sets():
    for test in ("-", "/dev/stdin"):
        with pytest.raises(
            UsageError, match="are both standard input, which can be read only once"
        ):
            load("-", test=test)


def test_names_in_messages_are_printable(tmp_path):
    odd = tmp_path / "a\n\x1b[31m.csv"
    odd.write_bytes(b"1,2\n1,x\n")
    with pytest.raises(DataError) as caught:
        read(odd)
    assert r"a\n\x1b[31m.csv:2:3: " in str(caught.value)
    assert str(caught.value).isprintable()
    assert str(Source(odd)).endswith(r"/a\n\x1b[31m.csv")
    assert shown("-") == shown("/dev/stdin") == "standard input"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("-", "stdin"),
        ("/dev/stdin", "stdin"),
        ("/dev/fd/63", "pipe"),
        ("a/covtype.csv.gz", "covtype"),
        ("a9a", "a9a"),
        (".hidden", "run"),
        ("a b\n.csv", "a-b"),
    ],
)
def test_a_run_directory_has_a_sensible_name(path, name):
    assert plain_name(path) == name
