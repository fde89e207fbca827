"""Runs whose processes are killed, flooded and disconnected: no row is lost, nothing is left."""

import os
import signal
import time

from tests.support.fault_injection import wait_for

ROWS = 32_561  # of a9a
SLOW = ("--hidden", "256,256", "--eval-seconds", 1000, "--lease-ms", 20)
EPOCHS = 10
LONG_RUN = ("--epochs", EPOCHS, *SLOW)  # some seconds


def audit(job):
    """Every row of every epoch was acknowledged once, and no other epoch was begun."""
    leases = {}
    for event in job.events("lease"):
        leases.setdefault(event["epoch"], []).append(event["rows"])
    assert sorted(leases) == list(range(EPOCHS))
    for ranges in leases.values():
        ranges.sort()
        assert [start for start, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])]
        assert ranges[-1][1] == ROWS
    ended = [(event["epoch"], event["rows"]) for event in job.events("epoch")]
    assert ended == [(epoch, ROWS) for epoch in range(EPOCHS)]


def test_rows_of_a_killed_worker_are_done_by_others_once(job):
    job.coordinate("a9a", *LONG_RUN)
    survivor, victim = job.attach(), job.attach()
    name = job.wait_for_event("worker_joined", pid=victim.pid)["worker"]
    job.wait_for_event("lease", 3, worker=name)
    job.note_memory()
    killed = time.time()
    victim.send_signal(signal.SIGKILL)
    lost = job.wait_for_event("worker_lost")
    survivor.send_signal(signal.SIGSTOP)  # or it might be through before the third is there
    third = job.attach()
    job.wait_for_event("lease", worker="cpu-2")
    survivor.send_signal(signal.SIGCONT)
    assert job.finish() == 0
    assert (survivor.returncode, victim.returncode, third.returncode) == (0, -signal.SIGKILL, 0)

    audit(job)
    left = next(event for event in job.events("worker_left") if event["worker"] == name)
    assert lost["worker"] == name and left["reissued"]
    assert left["at"] - killed < 0.25
    summary = job.summary()
    assert summary["status"] == "finished" and summary["rows"] == EPOCHS * ROWS
    assert summary["faults"]["workers_lost"] == 1
    assert summary["faults"]["leases_reissued"] == len(left["reissued"])
    assert len(summary["workers"]) == 3 and all(w["rows"] > 0 for w in summary["workers"])
    assert sum(worker["rows"] for worker in summary["workers"]) == summary["rows"]
    assert job.leftovers() == []


def test_a_worker_that_falls_silent_is_ended_and_its_rows_are_done_by_others(job):
    job.coordinate("a9a", *LONG_RUN)
    victim = job.attach()
    job.wait_for_event("lease", 3)
    victim.send_signal(signal.SIGSTOP)
    job.attach()
    assert job.finish() == 0
    assert victim.returncode == -signal.SIGKILL
    audit(job)
    assert job.wait_for_event("worker_lost")["reason"] == "silent for 5 s"
    assert job.summary()["faults"]["workers_lost"] == 1
    assert job.leftovers() == []


def test_a_worker_that_stood_still_for_a_while_goes_on(job):
    job.coordinate("a9a", *LONG_RUN)
    worker, _ = job.attach(), job.attach()
    name = job.wait_for_event("worker_joined", pid=worker.pid)["worker"]
    other = "cpu-1" if name == "cpu-0" else "cpu-0"
    for each in (name, other):
        job.wait_for_event("lease", 3, worker=each)
    worker.send_signal(signal.SIGSTOP)
    before = {each: sum(e["worker"] == each for e in job.events("lease")) for each in (name, other)}
    job.wait_for_event("lease", before[other] + 3, worker=other)
    worker.send_signal(signal.SIGCONT)
    job.wait_for_event("lease", before[name] + 1, worker=name)
    assert job.finish() == 0
    audit(job)
    assert job.summary()["faults"]["workers_lost"] == 0


def test_workers_are_gone_with_a_killed_coordinator(job):
    job.train("a9a", "--workers", "cpu:1,cpu:1", "--max-seconds", 300, *SLOW)
    for worker in ("cpu-0", "cpu-1"):
        job.wait_for_event("lease", worker=worker)
    job.note_memory()
    assert len(job.processes()) == 3
    job.coordinator.kill()
    killed = time.monotonic()
    job.coordinator.wait()
    wait_for(lambda: not job.processes(), "the workers end")
    assert time.monotonic() - killed < 2
    assert job.leftovers() == []


def test_a_run_directory_of_a_killed_coordinator_serves_again(job):
    job.train("a9a", "--workers", "cpu:1", "--max-seconds", 300)
    job.wait_for_event("lease")
    job.coordinator.kill()
    job.coordinator.wait()
    job.train("a9a", "--workers", "cpu:1", "--epochs", 1)
    assert job.finish() == 0 and job.summary()["status"] == "finished"


def test_a_worker_sent_sigterm_gives_back_what_it_has(job):
    job.coordinate("a9a", *LONG_RUN)
    first, _ = job.attach(), job.attach()
    name = job.wait_for_event("worker_joined", pid=first.pid)["worker"]
    job.wait_for_event("lease", 3, worker=name)
    first.terminate()
    assert first.wait() == 0
    assert job.finish() == 0
    audit(job)
    assert job.summary()["faults"]["workers_lost"] == 0


def test_a_run_whose_every_worker_leaves_says_why_and_keeps_the_model(job):
    flags = ("--hidden", "16", "--eval-seconds", 0.05, "--max-seconds", 300, "-q")
    job.train("a9a", "--workers", "cpu:1", *flags)
    job.wait_for_event("evaluation")
    os.kill(job.wait_for_event("worker_joined")["pid"], signal.SIGTERM)
    assert job.finish() == 6
    said = job.said(job.coordinator)
    assert said.startswith("hogbatch: all workers have exited; the last one exited with code 0")
    assert "Traceback" not in said
    assert job.summary()["status"] == "failed"
    assert (job.run_dir / "model.safetensors").exists()
    assert job.leftovers() == []
