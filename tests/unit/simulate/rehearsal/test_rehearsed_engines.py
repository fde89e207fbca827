"""The costs of rehearsed workers depend on the settings of the run."""

from types import SimpleNamespace

import pytest

from hogbatch.model.network import Network
from hogbatch.simulate.rehearsal.rehearsal import workload_of
from tests.support.assignments import examples


@pytest.mark.parametrize(
    ("optimizer", "merge", "sparse", "slots"),
    [
        ("adagrad", "delta", True, 1),
        ("adagrad", "delta", False, 0),
        ("adagrad", "average", True, 0),
        ("adam", "delta", True, 0),
    ],
)
def test_only_sums_of_sparse_rows_are_exchanged_and_only_added(optimizer, merge, sparse, slots):
    train = examples(20, sparse=sparse)
    training = SimpleNamespace(lsh=None, optimizer=SimpleNamespace(l2=0.0))
    setup = SimpleNamespace(
        config=SimpleNamespace(optimizer=optimizer, merge=merge),
        network=Network.build(train.features, (8,), 2, "relu", "softmax"),
        loaded=SimpleNamespace(train=train),
        plan=SimpleNamespace(training=training),
    )
    assert workload_of(setup).exchanged_slots == slots
