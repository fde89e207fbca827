import os
import threading

import pytest

import hogbatch.data.table.arrow.text as csv_text
from hogbatch.data import libsvm, text, xmc
from hogbatch.data.cache import DataCache
from hogbatch.data.readers import READERS, RELEVANT_OPTIONS

LONG_AGO = 1_000_000_000  # Unix seconds, the modification time of old files


@pytest.fixture
def write(tmp_path):
    """Write text or bytes to a file and return its path."""

    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture(params=["line by line", "compiled"])
def both_ways(request, monkeypatch):
    """Run a test with a single block, parsed line by line, and with small compiled blocks."""
    if request.param == "compiled":
        monkeypatch.setattr(text, "BLOCK_BYTES", 8)


@pytest.fixture
def pipe(tmp_path):
    """Named pipes with a writer each, which stops when the reader closes it."""
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


@pytest.fixture
def old_file(write):
    """Write a file with a modification time long ago."""

    def old_file(name, content):
        path = write(name, content)
        os.utime(path, (LONG_AGO, LONG_AGO))
        return path

    return old_file


@pytest.fixture
def messages():
    """The messages of the cache."""
    return []


@pytest.fixture
def cache(tmp_path, messages):
    """A cache that also stores files that are parsed quickly."""
    return DataCache(tmp_path / "cache" / "data", messages.append, min_parse_s=0.0)


@pytest.fixture
def parsed(monkeypatch):
    """The paths that were parsed, in order."""
    paths = []

    def watched(reader):
        def parse(path, *arguments, **options):
            paths.append(path.path)
            return reader(path, *arguments, **options)

        return parse

    monkeypatch.setattr(csv_text, "read_csv", watched(csv_text.read_csv))
    for reader in (libsvm.read, xmc.read):
        watching = watched(reader)
        monkeypatch.setitem(RELEVANT_OPTIONS, watching, RELEVANT_OPTIONS[reader])
        for ending, usual in READERS.items():
            if usual is reader:
                monkeypatch.setitem(READERS, ending, watching)
    return paths
