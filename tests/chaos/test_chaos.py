"""A short run under every kind of fault; scripts/chaos has longer ones."""

from tests.chaos.__main__ import FLAGS, TARGET
from tests.chaos.plan import KINDS, plan
from tests.chaos.sabotage import Sabotage
from tests.support.fault_injection import Job

SEED = 402  # whose plan has everything within a few seconds


def test_a_run_keeps_its_promises_whatever_is_broken(tmp_path):
    acts = plan(SEED, seconds=5.0, every=0.4)
    assert {act.what for act in acts} == set(KINDS)
    said = []
    sabotage = Sabotage(Job(tmp_path), *FLAGS, say=said.append)
    try:
        sabotage.begin()
        sabotage.carry_out(acts)
        sabotage.end(TARGET)
        assert sabotage.faults == []
        assert len(said) == len(acts)
        events = {event.name for life in sabotage.lives for event in life.events}
        assert {"worker_lost", "resumed", "epoch"} <= events
        assert len(sabotage.lives) == 1 + sum(a.what in ("coordinator", "corrupt") for a in acts)
    finally:
        sabotage.close()
