"""Tests within one process; real workers are in tests/integration."""

import mmap
import os
import subprocess
import sys

import msgspec
import pytest

from hogbatch.errors import ProtocolError, UsageError
from hogbatch.store.attach import PublishedSegments, attach_segments
from hogbatch.store.layout import arrange
from hogbatch.store.segment import Segment
from tests.support.descriptors import open_descriptors


@pytest.fixture
def segments():
    made = {
        name: Segment.create(name, arrange({"x": ("<f4", (4,))}), read_only=name == "data")
        for name in ("data", "shared")
    }
    made["data"].array("x")[:] = [1, 2, 3, 4]
    yield made
    for segment in made.values():
        segment.close()


@pytest.fixture
def published(segments):
    made = PublishedSegments("abc", 54, segments)
    yield made
    made.close()


def test_a_worker_gets_the_manifest_and_the_segments(published, segments):
    manifest, attached = attach_segments(published.address)
    assert (manifest.pid, manifest.fingerprint, manifest.features) == (os.getpid(), "abc", 54)
    assert attached["data"].array("x").tolist() == [1, 2, 3, 4]
    attached["shared"].array("x")[0] = 8
    assert segments["shared"].array("x")[0] == 8
    writable = {name: each.array("x").flags.writeable for name, each in attached.items()}
    assert writable == {"data": False, "shared": True}
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.pwrite(attached["data"].fd, b"x", 0)
    with pytest.raises(PermissionError):
        mmap.mmap(attached["data"].fd, attached["data"].layout.size)
    assert not any(os.get_inheritable(each.fd) for each in attached.values())
    for each in attached.values():
        each.close()


def test_processes_that_have_mapped_the_segments_are_known(published):
    assert published.attached_by(os.getpid())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        assert not published.attached_by(stranger.pid)
    assert not published.attached_by(stranger.pid)  # it has ended


def test_names_of_mapped_files_may_have_any_bytes(published, tmp_path):
    path = os.path.join(os.fsencode(tmp_path), b"latin-\xe9")
    with open(path, "wb+") as file:
        file.write(b"x")
        file.flush()
        with mmap.mmap(file.fileno(), 1):
            assert published.attached_by(os.getpid())


def test_a_process_with_the_segments_of_another_run_is_not_known(segments, monkeypatch):
    fd = os.memfd_create("hogbatch-shared")  # which this process has not mapped
    monkeypatch.setattr(segments["shared"], "fd", fd)
    other = PublishedSegments("abc", 54, {"shared": segments["shared"]})
    assert not other.attached_by(os.getpid())
    other.close()
    os.close(fd)


def test_nobody_can_attach_once_it_is_closed(published):
    published.close()
    published.close()
    with pytest.raises(UsageError, match=f"at {published.address} .*No such file.*: its run has"):
        attach_segments(published.address)


def test_a_descriptor_that_another_file_has_now_is_not_opened(published):
    number = int(published.address.rpartition("/")[2])
    published.close()
    readable, writable = os.pipe()  # reading it would block
    os.dup2(readable, number)
    try:
        with pytest.raises(UsageError, match=r"\(its descriptor is of another file\): its run"):
            attach_segments(published.address)
    finally:
        for fd in {readable, writable, number}:
            os.close(fd)


def test_a_coordinator_of_another_version_is_an_error_and_leaks_nothing(published):
    before = open_descriptors()
    fd = os.open(published.address, os.O_RDWR)
    manifest = msgspec.json.decode(os.read(fd, 1 << 16))
    manifest["segments"][0]["layout"]["size"] = 1 << 20
    for content, message in ((msgspec.json.encode(manifest), "1048576 bytes"), (b"", "got other")):
        os.truncate(fd, 0)
        os.pwrite(fd, content, 0)
        with pytest.raises(ProtocolError, match=message):
            attach_segments(published.address)
    os.close(fd)
    assert open_descriptors() <= before
