"""The network and the plan of a run, and the settings that workers receive."""

from types import SimpleNamespace

import pytest

from hogbatch.config.lsh import MANY, REHASH, REHASH_OF_SERVERS
from hogbatch.config.sources import merge_sources
from hogbatch.config.values import WorkerRequest
from hogbatch.data.load import load
from hogbatch.data.sizes import SetSizes
from hogbatch.errors import UsageError
from hogbatch.model.network import Network
from hogbatch.run.planning import is_small, limits_for, memory_for, network_for, plan_for

FEATURES = 30


def loaded(kind="multilabel", outputs=MANY):
    sets = SetSizes(100, FEATURES, sparse=False)
    encoding = SimpleNamespace(kind=kind, outputs=outputs, scale=1.0)
    return SimpleNamespace(fingerprint="abc", train_sizes=sets, test_sizes=sets, encoding=encoding)


def config(**flags):
    return merge_sources({"data": "x", "lr": 0.1, **flags})


def welcome_for(flags, network, data):
    return plan_for(config(**flags), data, network, "run").training.welcome("run", 0, "cpu-0")


@pytest.mark.parametrize(
    ("flags", "every", "damping", "precision"),
    [
        ({}, 0, "per-weight", "float32"),
        ({"merge_every": "4", "staleness_damping": "auto"}, 4, "auto", "float32"),
        ({"staleness_damping": "0.25", "precision": "tf32"}, 0, 0.25, "tf32"),
    ],
)
def test_gpu_workers_receive_the_merge_settings(flags, every, damping, precision):
    network = Network.build(FEATURES, (8,), 1, "relu", "logistic")
    welcome = welcome_for(flags, network, loaded("binary", 1))
    assert (welcome.merge_every, welcome.staleness_damping, welcome.precision) == (
        every,
        damping,
        precision,
    )
    assert welcome.lsh is None


def test_changes_of_a_wide_sparse_layer_are_not_damped_by_weights():
    data = loaded("binary", 1)
    features = 50_000
    data.train_sizes = SetSizes(100, features, sparse=True, stored=300, max_stored=9)
    network = Network.build(features, (8,), 1, "relu", "logistic")
    assert welcome_for({}, network, data).staleness_damping == "root"
    flags = {"staleness_damping": "per-weight"}
    assert welcome_for(flags, network, data).staleness_damping == "per-weight"


@pytest.mark.parametrize(
    ("flags", "kind", "outputs", "hashed", "loss"),
    [
        ({}, "multilabel", MANY, True, "multilabel-softmax"),
        ({}, "multilabel", MANY - 1, False, "multilabel"),
        ({}, "classes", MANY, True, "softmax"),
        ({}, "classes", 10, False, "softmax"),
        ({}, "binary", 1, False, "logistic"),
        ({"hidden": ""}, "multilabel", MANY, False, "multilabel"),
        ({"output": "dense"}, "multilabel", MANY, False, "multilabel"),
        ({"output": "lsh"}, "multilabel", 20, True, "multilabel-softmax"),
        ({"loss": "multilabel"}, "multilabel", MANY, False, "multilabel"),
        ({"loss": "multilabel", "output": "lsh"}, "multilabel", MANY, True, "multilabel"),
        ({"loss": "softmax", "output": "dense"}, "multilabel", 20, False, "multilabel-softmax"),
    ],
)
def test_many_outputs_are_hashed_and_use_the_softmax_loss(flags, kind, outputs, hashed, loss):
    network = network_for(config(**flags), loaded(kind, outputs))
    assert network.loss == loss
    assert (welcome_for(flags, network, loaded(kind, outputs)).lsh is not None) is hashed
    many = outputs >= MANY and flags.get("hidden") != ""
    assert network.layers[-1].output_major is (hashed or many)


@pytest.mark.parametrize(
    ("flags", "average"),
    [
        ({}, True),
        ({"output": "dense"}, False),
        ({"average": "off"}, False),
        ({"output": "dense", "average": "on"}, True),
    ],
)
def test_the_mean_of_a_hashed_model_is_saved(flags, average):
    network = network_for(config(**flags), loaded())
    assert plan_for(config(**flags), loaded(), network, "run").stopping.average is average


def test_one_output_is_not_hashed():
    with pytest.raises(UsageError, match="these data have one output"):
        network_for(config(output="lsh"), loaded("binary", 1))


def test_workers_receive_the_hashing_settings():
    flags = {"output": "lsh", "lsh": "wta:K=2,L=9", "seed": 7}
    lsh = welcome_for(flags, network_for(config(**flags), loaded()), loaded()).lsh
    assert (lsh.family, lsh.hashes, lsh.tables, lsh.seed) == ("wta", 2, 9, 7)
    assert lsh.background


@pytest.mark.parametrize(
    ("flags", "rehash"),
    [
        ({}, REHASH),
        ({"cluster": "local"}, REHASH_OF_SERVERS),
        ({"cluster": "local", "lsh": "auto:rehash=70"}, 70),
    ],
)
def test_servers_build_hash_tables_less_often(flags, rehash):
    flags = {"output": "lsh", **flags}
    lsh = welcome_for(flags, network_for(config(**flags), loaded()), loaded()).lsh
    assert lsh.rehash == rehash


def test_a_deterministic_run_does_not_build_tables_in_the_background():
    flags = {"output": "lsh", "deterministic": True, "epochs": 1}
    assert not welcome_for(flags, network_for(config(**flags), loaded()), loaded()).lsh.background


@pytest.mark.parametrize(
    ("flags", "epochs", "patience"),
    [
        ({}, 240, 60),
        ({"epochs": 3}, 3, 0),
        ({"max_seconds": 9.0}, None, 0),
        ({"target_loss": 0.1}, 2400, 60),
        ({"target_loss": 0.1, "max_seconds": 9.0}, None, 0),
        ({"epochs": 3, "target_loss": 0.1}, 3, 0),
        ({"epochs": 300, "patience": 5}, 300, 5),
        ({"patience": 0}, 240, 0),
    ],
)
def test_patience_applies_unless_another_limit_is_given(flags, epochs, patience):
    network = Network.build(FEATURES, (8,), 1, "relu", "logistic")
    ending = plan_for(config(**flags), loaded("binary", 1), network, "run").stopping
    assert (ending.epochs, ending.patience) == (epochs, patience)


@pytest.mark.parametrize(("teams", "sent"), [("auto", 0), (None, 0), ("1", 1), (4, 4)])
def test_workers_are_told_the_number_of_teams(teams, sent):
    network = Network.build(FEATURES, (8,), 1, "relu", "logistic")
    assert welcome_for({"cpu_teams": teams}, network, loaded("binary", 1)).cpu_teams == sent


def test_limits_and_weight_decay_are_those_given_or_found():
    network = Network.build(FEATURES, (8,), 1, "relu", "logistic")
    plan = plan_for(config(), loaded("binary", 1), network, "run")
    assert plan.limits.cpu is None  # it depends on the teams of each worker
    assert plan.training.optimizer.l2 == pytest.approx(0.0198)
    plan = plan_for(config(l2=0.0, cpu_batch="2:32"), loaded("binary", 1), network, "run")
    assert plan.limits.cpu == (2, 32)
    assert plan.training.optimizer.l2 == 0.0


@pytest.mark.parametrize(
    ("flags", "cpu"),
    [
        ({}, 0.5),
        ({"min_utilization": 0.9, "policy": "paper-adaptive"}, 0.9),
        ({"policy": "hogbatch"}, 0.0),
        ({"policy": "fixed"}, 0.0),
        ({"deterministic": True, "epochs": 1}, 0.0),
    ],
)
def test_a_cpu_has_a_measured_limit_unless_its_batches_are_fixed(flags, cpu):
    limits = limits_for(config(**flags), 30_000)
    assert limits.cpu_min_utilization == cpu
    assert limits.min_utilization == flags.get("min_utilization", 0.5)


@pytest.mark.parametrize(
    ("flags", "grows"),
    [
        ({"hidden": (16,)}, False),  # most of the work is in the sparse first layer
        ({"hidden": (16,), "cpu_teams": 1}, True),
        ({"hidden": (64, 64)}, True),
        ({"hidden": (64, 64), "output": "lsh"}, False),
    ],
)
def test_the_memory_of_a_thread_grows_with_their_number_only_where_they_are_in_a_team(
    flags, grows, tmp_path
):
    stored = " ".join(f"{feature}:1" for feature in range(8))
    rows = "".join(f"{i % 4} {stored} {8 + i % 50}:1\n" for i in range(40_000))
    (tmp_path / "data.svm").write_text(rows)
    given = config(loss="softmax", **flags)
    data = load(tmp_path / "data.svm")
    network = network_for(given, data)

    def per_thread(threads):
        workers = (WorkerRequest("cpu", threads=threads),)
        plan = plan_for(given, data, network, "run")
        return memory_for(given, data, network, plan, workers)["working memory of threads"] / (
            threads + 1
        )

    assert (per_thread(64) > 1.01 * per_thread(1)) is grows


@pytest.mark.parametrize(
    ("flags", "small"),
    [
        ({"epochs": 10}, True),
        ({"epochs": 100_000}, False),
        ({"hidden": (4096, 4096), "epochs": 10}, False),
        ({"max_seconds": 1.0}, False),  # which may be any number of epochs
        ({"epochs": 10, "workers": "cpu:1"}, False),
        ({"epochs": 10, "deterministic": True}, True),
        ({"epochs": 10, "start_with": 2}, False),
        ({"epochs": 10, "cpu_teams": 1}, False),
    ],
)
def test_small_runs_are_those_with_few_multiplications(flags, small):
    data = load("a9a")
    settings = config(**({"hidden": (16,)} | flags))
    network = network_for(settings, data)
    assert (
        is_small(settings, plan_for(settings, data, network, "run"), network, data.train_sizes)
        is small
    )


def test_a_hashed_output_layer_is_never_small():
    settings, data = config(output="lsh", hidden=(4,), epochs=1), loaded()
    network = network_for(settings, data)
    assert not is_small(
        settings, plan_for(settings, data, network, "run"), network, data.train_sizes
    )
