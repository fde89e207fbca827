"""Attachment of workers to the shared memory segments of a run.

The coordinator describes its segments in a manifest, a file in memory without a name. Workers open
the manifest, and then the segments, through /proc/<coordinator>/fd/<n>, which the kernel opens only
for the same user. However the coordinator ends, nothing has to be cleaned up.

The number of a descriptor that the coordinator has closed may belong to any file of it by then, so
workers open only memory of hogbatch.

How a worker finds the address is not part of this module (see :mod:`hogbatch.wire.address`).
"""

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from hogbatch.data.order import Window
from hogbatch.errors import ProtocolError, UsageError
from hogbatch.store.layout import Layout
from hogbatch.store.segment import Segment

OWN: Final = "hogbatch-"  # begins the name of a file on disk, and after "memfd:" of others


class SegmentDescription(msgspec.Struct, frozen=True):
    """The information a worker needs to attach one segment."""

    name: str
    fd: int  # in the coordinator
    layout: Layout
    writable: bool
    window: Window | None = None  # of a segment on disk


class SegmentManifest(msgspec.Struct, frozen=True):
    """The segments of a run."""

    pid: int  # of the coordinator
    fingerprint: str  # of the dataset
    features: int  # F
    segments: tuple[SegmentDescription, ...]


class AttachedSegments(NamedTuple):
    """The segments that a worker has attached, by name."""

    manifest: SegmentManifest
    segments: dict[str, Segment]


class PublishedSegments:
    """The coordinator's side: workers can attach the segments at `address`, until `close`."""

    def __init__(self, fingerprint: str, features: int, segments: Mapping[str, Segment]) -> None:
        """Publish `segments`, which the caller keeps; those that are read-only stay so."""
        described = tuple(
            SegmentDescription(
                name, segment.fd, segment.layout, not segment.read_only, segment.window
            )
            for name, segment in segments.items()
        )
        manifest = SegmentManifest(os.getpid(), fingerprint, features, described)
        self._inodes = {str(os.fstat(segment.fd).st_ino) for segment in segments.values()}
        self._fd = os.memfd_create("hogbatch-manifest", os.MFD_CLOEXEC)
        self.address = f"/proc/{os.getpid()}/fd/{self._fd}"
        os.write(self._fd, msgspec.json.encode(manifest))

    def attached_by(self, pid: int) -> bool:
        """Whether process `pid` has mapped one of the segments."""
        try:
            with Path(f"/proc/{pid}/maps").open(encoding="utf-8", errors="replace") as maps:
                mapped = [line.split(maxsplit=5) for line in maps if OWN in line]
        except OSError:
            return False
        return any(inode in self._inodes for _, _, _, _, inode, _ in mapped)

    def close(self) -> None:
        """Let no more workers attach; those that have the segments keep them."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


def attach_segments(address: str) -> AttachedSegments:
    """Attach the segments of the coordinator at `address`; called by workers.

    UsageError if no coordinator of this user is there, ProtocolError if it is of another version.
    """
    try:
        with open(_open(Path(address), os.O_RDONLY), "rb") as file:
            manifest = msgspec.json.decode(file.read(), type=SegmentManifest)
        segments = {each.name: _attach(Path(address).parent, each) for each in manifest.segments}
    except OSError as error:
        raise UsageError(
            f"cannot attach to the coordinator at {address} ({error.strerror}): its run has ended,"
            " or it belongs to another user or container"
        ) from error
    except msgspec.MsgspecError as error:
        raise ProtocolError(
            f"expected a manifest of segments at {address}; got other contents ({error}): run"
            " coordinator and worker from the same version of hogbatch"
        ) from error
    return AttachedSegments(manifest, segments)


def _attach(descriptors: Path, segment: SegmentDescription) -> Segment:
    access = os.O_RDWR if segment.writable else os.O_RDONLY
    fd = _open(descriptors / str(segment.fd), access)
    try:
        return Segment.attach(fd, segment.layout, segment.writable, segment.window)
    except BaseException:
        os.close(fd)
        raise


def _open(path: Path, access: int) -> int:
    if not Path(os.readlink(path)).name.removeprefix("memfd:").startswith(OWN):
        raise FileNotFoundError(errno.ENOENT, "its descriptor is of another file", str(path))
    return os.open(path, access | os.O_CLOEXEC)
