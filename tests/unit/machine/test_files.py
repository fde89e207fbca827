import errno
import os
import stat

import pytest

from hogbatch.machine.files import TEMPORARY_SUFFIX, write_directory
from tests.support.descriptors import open_descriptors

CHUNKS = [b"first", memoryview(b" second")]
CONTENT = {"one": lambda: iter(CHUNKS), "two": lambda: iter(())}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "000001"


@pytest.fixture(params=["unnamed files", "no O_TMPFILE", "no /proc"])
def system(request, monkeypatch):
    """The contents of the directory and the open files."""
    open_, link = os.open, os.link

    def open_named(path, flags, *mode, **keywords):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return open_(path, flags, *mode, **keywords)

    def link_without_proc(source, *arguments, **keywords):
        return link(source.replace("/proc/", "/no-proc/"), *arguments, **keywords)

    if request.param == "no O_TMPFILE":
        monkeypatch.setattr(os, "open", open_named)
    elif request.param == "no /proc":
        monkeypatch.setattr(os, "link", link_without_proc)
    return request.param


@pytest.fixture
def calls(monkeypatch):
    """The calls that determine which data survives a power failure, in order."""
    calls = []
    real = {name: getattr(os, name) for name in ("fsync", "rename", "link")}

    def fsync(descriptor):
        folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
        calls.append(("sync", "unfinished" if name.endswith(TEMPORARY_SUFFIX) else name * folder))
        real["fsync"](descriptor)

    def rename(source, target):
        calls.append(("rename", os.path.basename(target)))
        real["rename"](source, target)

    def link(source, target, **keywords):
        calls.append(("link", os.path.basename(target)))
        real["link"](source, target, **keywords)

    for each in (fsync, rename, link):
        monkeypatch.setattr(os, each.__name__, each)
    return calls


def contents(path):
    return {file.name: file.read_bytes() for file in path.iterdir()}


@pytest.mark.usefixtures("system")
class TestWriteDirectory:
    def test_the_directory_has_the_files_and_is_the_users_alone(self, path):
        before = open_descriptors()
        write_directory(path, CONTENT)
        assert open_descriptors() <= before
        assert contents(path) == {"one": b"first second", "two": b""}
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert list(path.parent.iterdir()) == [path]

    def test_content_reaches_the_disk_before_its_name_does(self, path, calls, system):
        write_directory(path, CONTENT)
        links = [("link", "one"), ("sync", ""), ("link", "two"), ("sync", "")]
        syncs = [("sync", ""), ("sync", "")]
        end = [("sync", "unfinished"), ("rename", path.name), ("sync", path.parent.name)]
        if system == "no /proc":  # found out when the files are written
            assert calls[:3] == [*syncs, ("link", "one")]
            del calls[:3]
        assert calls == [*syncs, *(links if system == "unnamed files" else []), *end]

    @pytest.mark.parametrize("call", ["fsync", "rename", "mkdir"])
    def test_a_failure_leaves_nothing(self, path, monkeypatch, call):
        def fail(*arguments):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(os, call, fail)
        with pytest.raises(OSError, match="Input/output error"):
            write_directory(path, CONTENT)
        assert list(path.parent.iterdir()) == []

    def test_what_is_there_is_not_replaced(self, path):
        write_directory(path, CONTENT)
        with pytest.raises(OSError, match="Directory not empty"):
            write_directory(path, {"one": lambda: [b"other"]})
        with pytest.raises(FileNotFoundError):
            write_directory(path.parent / "missing" / "000002", CONTENT)
        assert contents(path) == {"one": b"first second", "two": b""}
        assert list(path.parent.iterdir()) == [path]
