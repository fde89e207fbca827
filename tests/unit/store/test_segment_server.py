"""Tests with clients in the same process; real workers are in tests/integration."""

import os
import select
import socket
import threading
from contextlib import closing

import msgspec
import pytest

from benchmarks.common.job import WITHIN_S
from hogbatch.errors import ProtocolError, UsageError
from hogbatch.store import segment_server as module
from hogbatch.store.layout import arrange
from hogbatch.store.segment import Segment
from hogbatch.store.segment_server import (
    PeerCredentials,
    SegmentManifest,
    SegmentServer,
    describe_segments,
    fetch_segments,
)
from tests.support.descriptors import open_descriptors

ME = PeerCredentials(os.getpid(), os.geteuid())


@pytest.fixture
def segments():
    made = {
        name: Segment.create(name, arrange({"x": ("<f4", (4,))})) for name in ("data", "shared")
    }
    made["data"].array("x")[:] = [1, 2, 3, 4]
    made["data"].make_read_only()
    yield made
    for segment in made.values():
        segment.close()


@pytest.fixture
def manifest(segments):
    return SegmentManifest("run-1", "abc", 54, describe_segments(segments))


@pytest.fixture
def segment_server(tmp_path, segments, manifest):
    with closing(SegmentServer.open(tmp_path / "run", manifest, segments)) as segment_server:
        yield segment_server


def client(address):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(WITHIN_S)
    connection.connect(address)
    return connection


@pytest.fixture
def received(segment_server):
    """The segments a worker receives, in a thread in parallel with the coordinator's `serve`."""
    results = []
    thread = threading.Thread(
        target=lambda: results.append(fetch_segments(segment_server.address, WITHIN_S))
    )
    thread.start()
    assert select.select([segment_server], [], [], WITHIN_S)[0]
    assert segment_server.serve() == [ME]
    thread.join()
    yield results[0]
    for segment in results[0].segments.values():
        segment.close()


def test_a_worker_gets_the_manifest_and_the_segments(received, manifest, segments):
    assert received.manifest == manifest
    assert received.coordinator_pid == os.getpid()
    assert received.segments["data"].array("x").tolist() == [1, 2, 3, 4]
    received.segments["shared"].array("x")[0] = 8
    assert segments["shared"].array("x")[0] == 8
    writable = {name: s.array("x").flags.writeable for name, s in received.segments.items()}
    assert writable == {"data": False, "shared": True}
    assert not any(os.get_inheritable(s.fd) for s in received.segments.values())


def test_no_name_is_left_also_if_a_killed_coordinator_has_left_one(tmp_path, manifest, segments):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as killed:
        killed.bind(str(tmp_path / module.NAME))
    before = open_descriptors()
    segment_server = SegmentServer.open(tmp_path, manifest, segments)
    assert list(tmp_path.iterdir()) == [] and tmp_path.stat().st_mode & 0o777 == 0o700
    client(segment_server.address).close()
    segment_server.close()
    segment_server.close()
    assert open_descriptors() <= before


def test_a_directory_open_to_others_is_refused(tmp_path, manifest, segments):
    tmp_path.chmod(0o755)
    with pytest.raises(UsageError, match=r"expected a run directory with mode 0700; got 0755"):
        SegmentServer.open(tmp_path, manifest, segments)


def test_a_directory_that_cannot_hold_a_socket_is_refused(tmp_path, manifest, segments):
    (tmp_path / module.NAME).mkdir()
    before = open_descriptors()
    with pytest.raises(UsageError, match=f"can contain a Unix socket; got .* for {tmp_path}:"):
        SegmentServer.open(tmp_path, manifest, segments)
    assert open_descriptors() <= before


def test_everyone_who_waits_is_served_and_who_has_gone_is_counted(segment_server):
    with client(segment_server.address), client(segment_server.address):
        client(segment_server.address).close()
        assert segment_server.serve() == [ME] * 2
        assert segment_server.refused == 1


def test_another_user_gets_nothing(segment_server, monkeypatch):
    with client(segment_server.address) as other:
        monkeypatch.setattr(os, "geteuid", lambda: ME.uid + 1)
        assert segment_server.serve() == []
        assert segment_server.refused == 1
        assert socket.recv_fds(other, 100, 4)[:2] == (b"", [])


def test_a_coordinator_of_another_user_is_not_believed(segment_server, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: ME.uid + 1)
    with pytest.raises(ProtocolError, match=f"got one of user {ME.uid}"):
        fetch_segments(segment_server.address, WITHIN_S)


def test_the_longest_manifest_fits_into_one_packet_and_a_longer_one_is_refused(tmp_path, segments):
    short = SegmentManifest("", "", 1, describe_segments(segments))
    room = module.MAX_MANIFEST_BYTES - len(msgspec.json.encode(short))
    longer, longest = (
        msgspec.structs.replace(short, run="r" * length) for length in (room + 1, room)
    )
    with pytest.raises(ValueError, match="expected a manifest of at most 65536 bytes"):
        SegmentServer.open(tmp_path, longer, segments)
    with (
        closing(SegmentServer.open(tmp_path, longest, segments)) as segment_server,
        client(segment_server.address),
    ):
        assert segment_server.serve() == [ME]


@pytest.mark.parametrize("address", ["/proc/self/fd/999", "/proc/self/fd/0", "/nowhere"])
def test_an_address_without_a_coordinator_is_an_error_that_names_it(address):
    with pytest.raises(UsageError, match=f"expected a coordinator of this user at {address}"):
        fetch_segments(address, WITHIN_S)


def test_a_coordinator_that_is_silent_or_has_a_full_queue_is_given_up(segment_server):
    with pytest.raises(ProtocolError, match=r"expected an answer .* within 0.05 s"):
        fetch_segments(segment_server.address, 0.05)
    segment_server.serve()
    segment_server._listener.listen(0)
    with client(segment_server.address), pytest.raises(ProtocolError, match=r"within 0.05 s"):
        fetch_segments(segment_server.address, 0.05)


@pytest.mark.parametrize(
    ("answer", "count", "message"),
    [
        *((b"", 1, "got 0 bytes and 1 descr"), (b"\xff", 1, "1 bytes"), (b"{}", 1, "2 bytes")),
        *((None, 0, "and 0 descriptors"), (None, 2, "got 0 bytes")),  # the true manifest
    ],
)
def test_an_answer_that_cannot_be_used_is_an_error_and_leaks_nothing(
    manifest, answer, count, message
):
    before = open_descriptors()
    fds = [os.memfd_create("empty") for _ in range(count)]
    with pytest.raises(ProtocolError, match=message):
        module._attach(msgspec.json.encode(manifest) if answer is None else answer, fds)
    assert open_descriptors() <= before
