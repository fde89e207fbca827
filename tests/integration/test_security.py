"""Attacks on a real run: other users, peers without keys, false claims, floods, other versions."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import zmq

from hogbatch.errors import ProtocolError
from hogbatch.wire.address import Keys, find
from hogbatch.wire.codec import PROTOCOL
from hogbatch.wire.messages import Done, Failed, Goodbye, Heartbeat, Hello, Ready, Refused
from hogbatch.wire.sockets import Dealer
from tests.support.fault_injection import WITHIN_S, Job, cli, wait_for
from tests.support.garbage_messages import Flood
from tests.support.memory_cgroup import memory_cgroup
from tests.support.other_user import as_root, start_as_nobody

ROWS = 32_561  # of a9a
STEADY = ("--eval-seconds", 1000, "--lease-ms", 20, "-q")
TCP = ("--listen", "tcp://127.0.0.1:0")


def audit(job, epochs):
    """Every row of every epoch was acknowledged once; an interrupted run may have begun another."""
    done = {}
    for event in job.events("lease"):
        done.setdefault(event["epoch"], []).append(event["rows"])
    if job.coordinator.returncode == 130:
        done.pop(epochs, None)
    assert sorted(done) == list(range(epochs))
    for ranges in done.values():
        ranges.sort()
        assert [start for start, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])]
        assert ranges[-1][1] == ROWS


def connected(job, keys=None):
    address = find(job.run_dir)
    return Dealer(address.control, keys or address.keys)


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
        "from hogbatch.store.segment_server import fetch_segments;"
        "print(version(), fetch_segments(sys.argv[1], 180).manifest.fingerprint)"
    )
    command = [sys.executable, "-c", code, find(job.run_dir).store]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


# Over tcp, with keys ------------------------------------------------------------------------


def test_a_run_over_tcp_with_strangers_at_the_door(job):
    job.coordinate("a9a", "--epochs", 3, *TCP, "-q")
    assert job.address()["control"].startswith("tcp://127.0.0.1:")
    file = job.run_dir / "coordinator.json"
    assert file.stat().st_mode & 0o777 == 0o600
    keys = find(job.run_dir).keys
    strangers = []
    for wrong in (Keys(keys.server, *[k.decode() for k in zmq.curve_keypair()]), None):
        strangers.append(Dealer(job.address()["control"], wrong))
        strangers[-1].send(Hello("cpu", "cpu", 1, 1, "0", "0"))
    job.attach()
    job.attach()
    assert job.finish() == 0
    for stranger in strangers:  # which have had the time of the whole run
        try:
            assert stranger.receive() is None, "a stranger is not even refused"
        except ProtocolError:
            pytest.fail("a stranger was answered")
        stranger.close()
    audit(job, 3)
    summary = job.summary()
    assert summary["faults"]["workers_lost"] == 0 and summary["faults"]["messages_refused"] == 0
    assert keys.secret not in "".join(
        path.read_text(errors="replace") for path in job.run_dir.iterdir() if path.is_file()
    )
    assert job.leftovers() == []


def test_train_starts_its_workers_over_tcp(job):
    job.train("a9a", "--workers", "cpu:1,cpu:1", "--epochs", 2, *TCP, "-q")
    assert job.finish() == 0
    audit(job, 2)


def test_a_worker_does_not_use_keys_that_others_may_have_read(job):
    job.coordinate("a9a", "--epochs", 1, *TCP, "-q")
    (job.run_dir / "coordinator.json").chmod(0o644)
    late = cli("worker", "cpu", job.run_dir)
    assert late.returncode == 2 and "expected mode 0600" in late.stderr
    assert len(late.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--listen", "127.0.0.1:5555"), "--listen expects tcp://IP:PORT"),
        (("--listen", "tcp://192.0.2.1:0"), "choose another address"),
        (("--insecure",), "--insecure requires --listen"),
    ],
)
def test_an_address_that_cannot_be_is_refused_in_one_sentence(tmp_path, flags, said):
    refused = cli("train", "a9a", "--workers", "cpu:1", *flags, "--run-dir", tmp_path / "run")
    assert refused.returncode == 2 and said in refused.stderr.splitlines()[-1]
    assert "Traceback" not in refused.stderr


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
    "segment_server": outcome(lambda: connect(store, socket.SOCK_SEQPACKET)),
    "memory": outcome(lambda: open(f"/proc/{pid}/mem", "rb").read(1)),
    "descriptors": outcome(lambda: os.listdir(f"/proc/{pid}/fd")),
    "kill": outcome(lambda: os.kill(int(pid), 9)),
}))
"""


@as_root
def test_another_user_reaches_nothing_of_a_run():
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # so that only the run directory itself is in the way
        job = Job(folder)
        try:
            job.coordinate("a9a", "--epochs", 1, "-q")
            address = job.address()
            control = address["control"].removeprefix("ipc://")
            places = (job.run_dir, control, address["store"], address["pid"])
            outcomes = json.loads(start_as_nobody(INTRUDER, *places).communicate()[0])
            assert set(outcomes.values()) == {"PermissionError"}, outcomes
            job.attach()
            assert job.finish() == 0
        finally:
            job.close()


# Versions and other data --------------------------------------------------------------------

OTHER_VERSION = """
import struct, sys
from hogbatch.wire import codec, sockets
codec.PROTOCOL = sockets.PROTOCOL = {version}
codec.PREFIX = codec.MAGIC + struct.pack("<H", {version})
sys.argv[1:] = [{run_dir!r}, "--threads", "1"]
from hogbatch.workers import cpu
cpu.main()
"""


@pytest.mark.parametrize("version", [0, PROTOCOL + 1])
def test_both_sides_say_which_versions_they_speak(job, version):
    job.coordinate("a9a", "--epochs", 1, "-q")
    code = OTHER_VERSION.format(version=version, run_dir=str(job.run_dir))
    command = [sys.executable, "-c", code]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S)
    assert refused.returncode == 4
    assert f"the coordinator uses protocol {PROTOCOL}, this worker {version}" in refused.stderr
    assert "install the same hogbatch on both sides" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    job.attach()
    assert job.finish() == 0
    said = f"protocol version {version}; this side uses {PROTOCOL}"
    assert said in job.said(job.coordinator)


def test_who_has_other_code_or_other_data_is_told_what_differs(job):
    job.coordinate("a9a", "--epochs", 1, "-q")
    package, fingerprint = identity(job)
    for hello, differs in (
        (Hello("cpu", "cpu", 1, 1, "0.0.0", fingerprint), "0.0.0"),
        (Hello("gpu", "gpu:0", 1, 1, package, "other"), "data"),
    ):
        end = connected(job)
        end.send(hello)
        refusal = answer(end)
        assert isinstance(refusal, Refused) and differs in refusal.reason
        end.close()
    job.attach()
    assert job.finish() == 0
    assert [worker["name"] for worker in job.summary()["workers"]] == ["cpu-0"]


# Garbage and lies ---------------------------------------------------------------------------


def test_a_worker_that_lies_costs_no_row(job):
    """Each message is well formed, and none is true."""
    job.coordinate("a9a", "--max-seconds", 300, *STEADY)
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
    job.attach()
    job.wait_for_event("lease", 3)
    liar = connected(job)
    for lie in lies:
        liar.send(lie)
        liar.wait(0.002)
    answer(liar)
    liar.close()
    job.wait_for_event("epoch", len(job.events("epoch")) + 1)
    job.coordinator.terminate()
    assert job.finish() == 130
    audit(job, len(job.events("epoch")))
    assert "Traceback" not in job.said(job.coordinator)
    leases = [event["rows"] for event in job.events("lease")]
    assert job.summary()["rows"] == sum(stop - start for start, stop in leases)


def memory_kb(pid):
    """Memory of a process that it shares with nobody."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def test_thousands_of_garbage_messages_change_nothing(job):
    began = time.monotonic()
    job.coordinate("a9a", "--max-seconds", 300, *STEADY)
    job.attach()
    with Flood(job.address()["control"]) as flood:
        flood.send(1_000)
        job.wait_for_event("lease", 3)
        before, leases = memory_kb(job.coordinator.pid), len(job.events("lease"))
        flood.send(2_500)
        wait_for(
            lambda: flood.send(2_500) or len(job.events("lease")) > leases,
            "training goes on meanwhile",
        )
        more = len(job.events("lease")) - leases  # whose record takes about 2 kB each
        assert memory_kb(job.coordinator.pid) - before < 4_000 + 5 * more
    job.coordinator.terminate()
    assert job.finish() == 130
    faults = job.summary()["faults"]
    assert faults["messages_refused"] > 3_000  # the others may still be in buffers
    assert faults["workers_lost"] == faults["leases_reissued"] == 0
    refusals = [
        s for s in job.said(job.coordinator).splitlines() if "rejected an invalid message" in s
    ]
    most = 1 + (time.monotonic() - began) // 60
    assert 1 <= len(refusals) <= most, "one complaint a minute"
    assert job.leftovers() == []


# One coordinator, little memory -------------------------------------------------------------


def test_a_second_coordinator_is_told_since_when_the_directory_is_held(job):
    job.coordinate("a9a", "-q")
    second = cli("coordinator", "a9a", *TCP, "--run-dir", job.run_dir)
    held = job.address()
    assert second.returncode == 3
    assert f"held by process {held['pid']} since {held['since']}" in second.stderr
    job.coordinator.kill()
    job.coordinator.wait()
    job.train("a9a", "--workers", "cpu:1", "--epochs", 1, "-q")
    assert job.finish() == 0


@as_root
def test_a_small_dev_shm_does_not_matter(tmp_path):
    mounts = "mount -t tmpfs -o size=8m tmpfs /dev/shm && exec "
    flags = ("--workers", "cpu:1", "--hidden", "1600,1600", "--max-seconds", "0.1", "-q")
    train = [sys.executable, "-m", "hogbatch.cli.main", "train", "a9a", *flags]
    command = ["unshare", "-m", "sh", "-c", mounts + '"$@"', "sh", *train]
    if subprocess.run(["unshare", "-m", "sh", "-c", mounts + "true"]).returncode:
        pytest.skip("this root may not mount")
    ran = subprocess.run(
        [*command, "--run-dir", tmp_path / "run"], capture_output=True, text=True, timeout=WITHIN_S
    )
    assert ran.returncode == 0, ran.stderr


LIMITED = """
import os, sys
from hogbatch.store.layout import Layout
from hogbatch.store.segment import Segment
with open(sys.argv[1] + "/cgroup.procs", "w") as procs:
    procs.write(str(os.getpid()))
Segment.create("small", Layout((), 1 << 20)).close()
Segment.create("data", Layout((), 512 << 20))
"""


@as_root
def test_more_memory_than_the_cgroup_allows_is_one_sentence_and_not_the_oom_killer():
    with memory_cgroup(256 << 20) as group:
        ran = subprocess.run(
            [sys.executable, "-c", LIMITED, group], capture_output=True, text=True, timeout=WITHIN_S
        )
    assert ran.returncode == 1
    assert "of free memory for the data segment; got " in ran.stderr
    assert "(the limit of its cgroup)" in ran.stderr
