import os
import signal
import subprocess
import sys
from contextlib import closing

import pytest

from hogbatch.errors import RunDirectoryHeld, UsageError
from hogbatch.wire.address import NAME, Address, RunLock, find
from tests.support.other_user import NOBODY, as_root

ADDRESS = Address("a-run", 4242, "ipc:///proc/4242/fd/7", "/proc/4242/fd/8", "2026-01-01T12:00:00")

HOLDER = """
import sys, time
from pathlib import Path
from hogbatch.wire.address import Address, RunLock
run_lock = RunLock.take(Path(sys.argv[1]))
run_lock.publish(Address("other", 4242, "ipc://x", "y", "yesterday"))
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def run_dir(tmp_path):
    return tmp_path / "runs" / "one"


@pytest.fixture
def holder(run_dir):
    """Another process that holds the lock of the run directory."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, run_dir], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


@pytest.fixture
def run_lock(run_dir):
    """The lock of the run directory, with an address."""
    with closing(RunLock.take(run_dir)) as taken:
        taken.publish(ADDRESS)
        yield taken


def test_a_run_directory_has_one_coordinator_which_workers_find(run_dir, run_lock):
    with pytest.raises(RunDirectoryHeld, match="process 4242 since 2026-01-01T12:00:00"):
        RunLock.take(run_dir)
    assert find(run_dir) == ADDRESS  # the attempt did no harm


def test_what_a_killed_coordinator_left_bars_nobody(run_dir, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert find(run_dir).run == "other"  # stale, and still there
    run_lock = RunLock.take(run_dir)
    run_lock.publish(ADDRESS)
    assert find(run_dir) == ADDRESS
    run_lock.close()


def test_a_directory_is_free_after_its_coordinator_has_closed(run_dir):
    RunLock.take(run_dir).close()
    with pytest.raises(UsageError, match="no coordinator is running in"):
        find(run_dir)
    RunLock.take(run_dir).close()


def test_only_the_user_may_enter_the_directory(run_dir):
    before = os.umask(0)
    try:
        RunLock.take(run_dir).close()
    finally:
        os.umask(before)
    assert run_dir.stat().st_mode & 0o777 == 0o700
    assert (run_dir / NAME).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o710, 0o701])
def test_a_directory_that_others_may_enter_is_refused(run_dir, mode):
    run_dir = run_dir.with_name("my run")
    run_dir.mkdir(parents=True)
    run_dir.chmod(mode)
    command = f"run chmod 700 '{run_dir}', or"
    with pytest.raises(UsageError, match=f"got {mode:04o} for {run_dir}: {command}"):
        RunLock.take(run_dir)
    assert list(run_dir.iterdir()) == []


@as_root
def test_a_directory_of_another_user_is_refused(run_dir):
    """That user could have placed links and settings in it."""
    run_dir.mkdir(parents=True, mode=0o700)
    (run_dir / NAME).touch()
    os.chown(run_dir, NOBODY["user"], NOBODY["group"])
    for use in (RunLock.take, find):
        with pytest.raises(UsageError, match=f"got one of user {NOBODY['user']}, .*another --run"):
            use(run_dir)


def test_a_link_in_place_of_the_address_is_not_followed(run_dir, tmp_path):
    run_dir.mkdir(parents=True, mode=0o700)
    (tmp_path / "precious").write_text("kept")
    (run_dir / NAME).symlink_to(tmp_path / "precious")
    with pytest.raises(UsageError, match="as run directory: Too many levels of symbolic links"):
        RunLock.take(run_dir)
    assert (tmp_path / "precious").read_text() == "kept"


def test_a_file_in_the_place_of_the_directory_is_refused(run_dir):
    run_dir.parent.mkdir()
    run_dir.touch()
    with pytest.raises(UsageError, match="as run directory: File exists"):
        RunLock.take(run_dir)


@pytest.mark.parametrize("text", ["", "{", '{"run": "x"}', "\x00"])
def test_a_broken_address_is_none(run_dir, text):
    run_dir.mkdir(mode=0o700, parents=True)
    (run_dir / NAME).write_text(text)
    with pytest.raises(UsageError, match="no coordinator is running in"):
        find(run_dir)


def test_only_the_user_can_read_the_address_and_it_is_gone_after_the_run(run_dir):
    run_dir.mkdir(mode=0o700, parents=True)
    (run_dir / NAME).touch(mode=0o666)
    (run_dir / NAME).chmod(0o666)  # whatever the umask; an earlier run may have left it so
    run_lock = RunLock.take(run_dir)
    run_lock.publish(ADDRESS)
    assert (run_dir / NAME).stat().st_mode & 0o777 == 0o600
    run_lock.close()
    assert (run_dir / NAME).read_bytes() == b""
