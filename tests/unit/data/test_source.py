import numpy as np
import pytest

from hogbatch.data import source
from hogbatch.data.load import load
from hogbatch.data.source import Source, plain_name, shown
from hogbatch.errors import UsageError
from hogbatch.machine import budget
from tests.support.descriptors import open_descriptors
from tests.support.reading import packed, read, read_error

TABLE = b"a,b,y\n1,2,0\n3,4,1\n"


def test_a_pipe_is_read_as_a_file_is(pipe, tmp_path):
    read(pipe("first.csv", TABLE))  # opens what stays open in a process
    before = open_descriptors()
    for name, content in (
        ("a.csv", TABLE),
        ("a", TABLE),
        ("a.tsv", TABLE.replace(b",", b"\t")),
        ("b", packed("b.gz", TABLE)),
    ):
        raw = read(path := pipe(name, content))
        assert (raw.rows, raw.source) == (2, str(path))
    np.savez(tmp_path / "b.npz", X=np.eye(3), y=np.arange(3))
    assert read(pipe("c", (tmp_path / "b.npz").read_bytes())).rows == 3
    assert open_descriptors() <= before


def test_streams_and_paths_of_descriptors_are_not_kept_in_the_cache(pipe, old_file, cache):
    read(pipe("a.csv", TABLE), cache)
    with open(old_file("b.csv", TABLE), "rb") as file:
        for folder in ("/dev/fd", "/proc/self/fd"):
            assert read(f"{folder}/{file.fileno()}", cache).rows == 2
    assert not cache.directory.exists()


def test_a_stream_that_is_no_text_is_refused_at_once(pipe, monkeypatch):
    monkeypatch.setattr(source, "MAX_LINE_BYTES", 10**6)
    assert "/dev/zero: " in (found := read_error("/dev/zero")) and "zero bytes only" in found
    assert "binary data of an unknown type" in read_error("/dev/urandom")
    assert "/dev/null is empty" in read_error("/dev/null")
    hdf = pipe("a.csv", b"\x89HDF\r\n\x1a\n" + b"1" * 10**6, times=10**6)
    assert "a.csv: expected text or an .npz archive; got an HDF5 file" in read_error(hdf)
    found = read_error(pipe("b.csv", b"1" * 10**6, times=10**6))
    assert "b.csv: expected lines of up to 1 MB; got a longer line" in found


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


@pytest.mark.parametrize("test", ["-", "/dev/stdin"])
def test_standard_input_cannot_be_both_sets(test):
    with pytest.raises(UsageError, match="are standard input, which can be read only once"):
        load("-", files={"test": test})


def test_names_in_messages_are_printable(write):
    odd = write("a\n\x1b[31m.csv", b"1,2\nx,1\n")
    assert r"a\n\x1b[31m.csv:2: " in (found := read_error(odd)) and found.isprintable()
    assert str(Source(odd)).endswith(r"/a\n\x1b[31m.csv")
    assert shown("-") == shown("/dev/stdin") == "standard input"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/dev/stdin", "stdin"),
        ("/dev/fd/63", "pipe"),
        ("a/covtype.csv.gz", "covtype"),
        (".hidden", "run"),
        ("a b\n.csv", "a-b"),
    ],
)
def test_a_run_directory_has_a_sensible_name(path, name):
    assert plain_name(path) == name
