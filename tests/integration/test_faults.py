"""Runs whose processes are killed, flooded and disconnected: no row is lost, nothing is left."""

import os
import signal

from tests.support.fault_injection import WITHIN_S, wait_for

ROWS = 32_561  # of a9a
UNTIL_INTERRUPTED = ("--max-seconds", 300, "--eval-seconds", 1000, "--lease-ms", 20)
# An epoch takes seconds, so that no worker runs out of rows soon after training has begun.
LONG_EPOCHS = ("a9a", "--hidden", "1024,1024", *UNTIL_INTERRUPTED)
SHORT_EPOCHS = ("a9a", "--hidden", "256,256", *UNTIL_INTERRUPTED)


def end_after_an_epoch(job, more=1):
    """Interrupt the run when so many more epochs have ended; check what was done in all epochs."""
    job.wait_for_event("epoch", len(job.events("epoch")) + more)
    job.coordinator.send_signal(signal.SIGINT)
    assert job.finish() == 130
    audit(job)


def audit(job):
    """Every row of every epoch was acknowledged once; in the last one, some were not yet."""
    ended = [(event["epoch"], event["rows"]) for event in job.events("epoch")]
    assert ended == [(epoch, ROWS) for epoch in range(len(ended))]
    leases = {epoch: [] for epoch, _ in ended}
    for event in job.events("lease"):
        leases.setdefault(event["epoch"], []).append(event["rows"])
    assert set(leases) <= set(range(len(ended) + 1))
    for epoch, ranges in leases.items():
        ranges.sort()
        starts, stops = [start for start, _ in ranges], [stop for _, stop in ranges]
        if epoch < len(ended):
            assert (starts, stops[-1]) == ([0, *stops[:-1]], ROWS)
        else:
            assert all(stop <= start for stop, start in zip(stops, starts[1:], strict=False))


def test_rows_of_a_killed_worker_are_done_by_others_once(job):
    job.coordinate(*LONG_EPOCHS, "--start-with", 3)
    workers = [job.attach() for _ in range(3)]
    for name in ("cpu-0", "cpu-1", "cpu-2"):
        job.wait_for_event("lease", worker=name)
    victim, *survivors = workers
    name = job.wait_for_event("worker_joined", pid=victim.pid)["worker"]
    job.note_memory()
    victim.kill()
    lost = job.wait_for_event("worker_lost")
    end_after_an_epoch(job)
    assert victim.returncode == -signal.SIGKILL
    assert [worker.returncode for worker in survivors] == [0, 0]

    assert (lost["worker"], lost["reason"]) == (name, f"process {victim.pid} exited")
    (left,) = [event for event in job.events("worker_left") if event["worker"] == name]
    assert left["reissued"]
    summary = job.summary()
    assert summary["faults"]["workers_lost"] == 1
    assert summary["faults"]["leases_reissued"] == len(left["reissued"])
    assert len(summary["workers"]) == 3 and all(w["rows"] > 0 for w in summary["workers"])
    assert sum(worker["rows"] for worker in summary["workers"]) == summary["rows"]
    assert job.leftovers() == []


def test_a_worker_that_falls_silent_is_ended_and_its_rows_are_done_by_others(job):
    job.coordinate(*SHORT_EPOCHS)
    victim = job.attach()
    job.wait_for_event("lease", 3)
    victim.send_signal(signal.SIGSTOP)
    job.attach()
    lost = job.wait_for_event("worker_lost")
    end_after_an_epoch(job)
    assert victim.returncode == -signal.SIGKILL
    assert lost["reason"].startswith("silent for ")
    assert job.summary()["faults"]["workers_lost"] == 1
    assert job.leftovers() == []


def test_a_worker_that_stood_still_for_a_while_goes_on(job):
    job.coordinate(*LONG_EPOCHS, "--start-with", 2)
    worker, _ = job.attach(), job.attach()
    name = job.wait_for_event("worker_joined", pid=worker.pid)["worker"]
    other = "cpu-1" if name == "cpu-0" else "cpu-0"
    for each in (name, other):
        job.wait_for_event("lease", worker=each)
    worker.send_signal(signal.SIGSTOP)
    before = {each: sum(e["worker"] == each for e in job.events("lease")) for each in (name, other)}
    job.wait_for_event("lease", before[other] + 3, worker=other)
    worker.send_signal(signal.SIGCONT)
    job.wait_for_event("lease", before[name] + 1, worker=name)
    end_after_an_epoch(job)
    assert job.summary()["faults"]["workers_lost"] == 0


def test_workers_are_gone_with_a_killed_coordinator(job):
    job.train(*LONG_EPOCHS, "--workers", "cpu:1,cpu:1")
    for worker in ("cpu-0", "cpu-1"):
        job.wait_for_event("lease", worker=worker)
    job.note_memory()
    assert len(job.processes()) == 3
    job.coordinator.kill()
    job.coordinator.wait()
    wait_for(lambda: not job.processes(), "the workers end")
    assert job.leftovers() == []


def test_a_run_directory_of_a_killed_coordinator_serves_again(job):
    job.train("a9a", "--workers", "cpu:1", "--max-seconds", 300)
    job.wait_for_event("lease")
    job.coordinator.kill()
    job.coordinator.wait()
    job.train("a9a", "--workers", "cpu:1", "--epochs", 1)
    assert job.finish() == 0 and job.summary()["status"] == "finished"


def test_a_worker_sent_sigterm_gives_back_what_it_has(job):
    job.coordinate(*SHORT_EPOCHS, "--start-with", 2)
    first, _ = job.attach(), job.attach()
    name = job.wait_for_event("worker_joined", pid=first.pid)["worker"]
    job.wait_for_event("lease", 3, worker=name)
    first.terminate()
    assert first.wait(WITHIN_S) == 0
    end_after_an_epoch(job, 2)  # the first of them might have ended before
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
