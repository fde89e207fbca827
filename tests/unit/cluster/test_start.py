"""The start message of a server is decoded as it was encoded."""

from dataclasses import replace

import msgspec

from hogbatch.cluster.start import ServerStart, plan_of_server
from hogbatch.config.layers import DenseLayer
from hogbatch.policy.base import PolicySettings
from hogbatch.store.layout import arrange
from tests.support.coordinator_stage import make_plan


def test_a_start_is_sent_as_it_is():
    plan = make_plan(epochs=None, target_loss=0.3, max_rows=7)
    sent = ServerStart(
        control="ipc://control",
        keys=None,
        identity=b"identity",
        settings='data = "a9a"\n',
        workers="cpu:1",
        plan=plan_of_server(plan, 1),
        policy=PolicySettings(),
        data=arrange({"x": ("<f4", (3, 2))}),
        parts=None,
        features=5,
        mean_square=1.5,
        relay="a thread",
    )
    found = msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=ServerStart)
    assert found == sent
    assert isinstance(found.plan.training.layers[0], DenseLayer)
    assert (found.plan.start_with, found.plan.stopping.max_rows) == (1, None)
    assert replace(found.plan, stopping=plan.stopping) == plan
