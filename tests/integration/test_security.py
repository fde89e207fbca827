"""Attacks on a real run: other users, false claims, floods, other versions."""

import json
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from hogbatch.events.event import LeaseDone, WorkerLost
from hogbatch.wire.address import find
from hogbatch.wire.codec import PROTOCOL
from hogbatch.wire.messages import Done, Failed, Goodbye, Heartbeat, Hello, Ready, Refused
from hogbatch.wire.sockets import Dealer
from tests.support.fault_injection import ENDLESS, WITHIN_S, Job, wait_for
from tests.support.garbage_messages import Flood
from tests.support.other_user import as_root, start_as_nobody


def connected(job):
    return Dealer(find(job.run_dir).control)


def answer(end):
    """The next message of the coordinator."""
    deadline = time.monotonic() + WITHIN_S
    while (message := end.receive()) is None:
        assert time.monotonic() < deadline, "no answer"
        end.wait(0.1)
    return message


def identity(job):
    """Package version and data fingerprint that this run asks for, as a worker learns them."""
    code = (
        "import sys; from hogbatch.version import version;"
        "from hogbatch.store.attach import attach_segments;"
        "print(version(), attach_segments(sys.argv[1]).manifest.fingerprint)"
    )
    command = [sys.executable, "-c", code, find(job.run_dir).store]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


# Other users --------------------------------------------------------------------------------

INTRUDER = """
import json, os, socket, sys
run_dir, control, store, pid = sys.argv[1:]

def outcome(attempt):
    try:
        return f"worked: {attempt()!r}"
    except OSError as error:
        return type(error).__name__

def connect(path, kind):
    with socket.socket(socket.AF_UNIX, kind) as connection:
        connection.connect(path)

print(json.dumps({
    "list": outcome(lambda: os.listdir(run_dir)),
    "address": outcome(lambda: open(run_dir + "/coordinator.json").read()),
    "control": outcome(lambda: connect(control, socket.SOCK_STREAM)),
    "store": outcome(lambda: open(store).read()),
    "memory": outcome(lambda: open(f"/proc/{pid}/mem", "rb").read(1)),
    "descriptors": outcome(lambda: os.listdir(f"/proc/{pid}/fd")),
    "kill": outcome(lambda: os.kill(int(pid), 9)),
}))
"""


@as_root
def test_another_user_reaches_nothing_of_a_run():
    with tempfile.TemporaryDirectory() as folder, closing(Job(folder)) as job:
        Path(folder).chmod(0o755)  # so that only the run directory itself is in the way
        job.coordinate("a9a", "-q")
        address = job.address()
        control = address["control"].removeprefix("ipc://")
        places = (job.run_dir, control, address["store"], address["pid"])
        outcomes = json.loads(start_as_nobody(INTRUDER, *places).communicate()[0])
        assert set(outcomes.values()) == {"PermissionError"}, outcomes
        assert job.coordinator.poll() is None


# Other code or data -------------------------------------------------------------------------

IMPOSTOR = """
import sys
from hogbatch.workers import cpu, session
{change}
sys.argv[1:] = [{run_dir!r}, "--threads", "1"]
cpu.main()
"""
OTHER_PROTOCOL = "from hogbatch.wire import codec; codec.PREFIX = codec.MAGIC + b'\\x00\\x00'"


def test_workers_of_other_versions_or_data_are_refused_and_the_run_goes_on(job):
    job.coordinate("a9a", "--epochs", 1, "-q")
    for change, code, said in (
        ("session.version = lambda: '0.0.1'", 4, "this worker 0.0.1: install the same version"),
        (OTHER_PROTOCOL, 4, f"the coordinator uses protocol {PROTOCOL}, this worker 0"),
        ("cpu.CpuEngine._warm_up = lambda self, wait: 1 / 0", 1, "ZeroDivisionError"),
    ):
        program = IMPOSTOR.format(change=change, run_dir=str(job.run_dir))
        command = [sys.executable, "-c", program]
        refused = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S)
        assert (refused.returncode, said in refused.stderr) == (code, True), refused.stderr
        assert code == 1 or len(refused.stderr.splitlines()) == 1
    lost = job.wait_for_event(WorkerLost)
    assert lost.reason == "ZeroDivisionError: division by zero"
    with closing(connected(job)) as end:
        end.send(Hello("gpu", "gpu:0", 1, 1, identity(job)[0], "other"))
        refusal = answer(end)
    assert isinstance(refusal, Refused) and "data" in refusal.reason
    job.attach()
    assert job.finish() == 0
    assert [worker["rows"] > 0 for worker in job.summary()["workers"]] == [False, True]
    assert f"protocol version 0; this side uses {PROTOCOL}" in job.said(job.coordinator)


# Garbage and lies ---------------------------------------------------------------------------


def memory_kb(pid):
    """Memory of a process that it shares with nobody."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def test_thousands_of_garbage_messages_change_nothing(job):
    began = time.monotonic()
    job.coordinate("a9a", *ENDLESS, "--eval-seconds", 1000, "--lease-ms", 20, "-q")
    job.attach()
    with Flood(job.address()["control"]) as flood:
        flood.send(500)
        job.wait_for_event(LeaseDone, 3)
        before, leases = memory_kb(job.coordinator.pid), len(job.events(LeaseDone))
        flood.send(1_500)
        wait_for(
            lambda: flood.send(1_500) or len(job.events(LeaseDone)) > leases,
            "training goes on meanwhile",
        )
        more = len(job.events(LeaseDone)) - leases  # whose record takes about 2 kB each
        assert memory_kb(job.coordinator.pid) - before < 4_000 + 5 * more
    tell_lies(job)
    job.end_of_next_epoch()
    job.interrupt()
    job.check_rows()
    faults, said = job.summary()["faults"], job.said(job.coordinator)
    assert faults["messages_refused"] > 2_000  # the others may still be in buffers
    refusals = [line for line in said.splitlines() if "rejected an invalid message" in line]
    most = 1 + (time.monotonic() - began) // 60
    assert 1 <= len(refusals) <= most, "one complaint a minute"
    assert "Traceback" not in said
    leases = [event.rows for event in job.events(LeaseDone)]
    assert job.summary()["rows"] == sum(stop - start for start, stop in leases)
    assert job.leftovers() == []


def tell_lies(job):
    """Send messages that are well formed, none of which is true, until one is answered."""
    honest = Hello("cpu", "liar", 4096, 2**53, *identity(job))
    largest = 2**53
    lies = [
        *(Heartbeat(), Goodbye(), Failed("\x1b[2J\n" * 100), Ready(())),  # before Hello
        *(honest, honest, Ready(((0, 0.0),)), Ready(((largest, 1e300),) * 100), Ready(())),
        Done(largest, largest, largest, 1e300, 1e300, largest, (1e300,) * 50),
        *(Done(n, 0, 0, 0.0, 0.0, 0, ()) for n in range(5)),
        *(Done(n, largest, 1, 1e-300, 0.0, 0, (), too_large=largest) for n in range(5)),
        *(Hello("gpu", "liar", 1, 0, honest.package, honest.fingerprint), Ready(()), Heartbeat()),
        *(honest, Failed(""), Ready(((1, 1.0),)), Goodbye(), Goodbye(), Heartbeat()),
    ]
    with closing(connected(job)) as liar:
        for lie in lies:
            liar.send(lie)
            liar.wait(0.002)
        answer(liar)
