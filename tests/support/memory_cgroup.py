"""A memory cgroup, which limits the memory of the processes in it."""

import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def memory_cgroup(size):
    """A memory cgroup (version 1) of `size` bytes, with a name that no other test has."""
    try:
        group = Path(tempfile.mkdtemp(prefix="hogbatch-test-", dir="/sys/fs/cgroup/memory"))
    except OSError:
        pytest.skip("no memory cgroup can be made here")
    try:
        (group / "memory.limit_in_bytes").write_text(str(size))
        yield group
    finally:
        group.rmdir()
