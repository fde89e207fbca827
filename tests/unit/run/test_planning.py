"""The network and the plan of a run, and the settings that workers receive."""

from types import SimpleNamespace

import pytest

from hogbatch.config.augmentation import Augmentation
from hogbatch.config.lsh import MANY, REHASH, REHASH_OF_SERVERS
from hogbatch.config.sources import merge_sources
from hogbatch.config.values import BatchLimits, WorkerRequest
from hogbatch.data.encode import Encoding
from hogbatch.data.sizes import SetSizes
from hogbatch.errors import UsageError
from hogbatch.run.memory import memory_for
from hogbatch.run.planning import (
    has_label_vectors,
    has_nearest_rows,
    limits_for,
    network_for,
    plan_for,
    policy_settings,
    with_recipe,
)
from hogbatch.run.small import is_small

DENSE = SetSizes(100, 30, sparse=False)


def config(**flags):
    return merge_sources({"data": "x", "lr": 0.1, **flags})


def planned(kind="binary", outputs=1, sizes=DENSE, shape=(), **flags):
    """The settings, the data, the network and the plan of a run on rows of this `shape`."""
    encoding = Encoding(kind, (), outputs)
    data = SimpleNamespace(
        fingerprint="abc",
        train_sizes=sizes,
        set_sizes={"train": sizes, "validation": sizes},
        encoding=encoding,
        mean_square=30.0,
        input_shape=shape,
        table=None,
    )
    network = network_for(config(**flags), data)
    chosen = with_recipe(config(**flags), data, network)
    return chosen, data, network, plan_for(chosen, data, network)


def welcome(*data, **flags):
    return planned(*data, **flags)[-1].training


def values(found, expected):
    return {name: getattr(found, name) for name in expected}


@pytest.mark.parametrize(
    ("flags", "sent"),
    [
        (
            {},
            {"merge_every": 0, "staleness_damping": "per-weight", "precision": "tf32"}
            | {"lsh": None, "cpu_teams": 0},
        ),
        (
            {"merge_every": "4", "staleness_damping": "off", "precision": "float32"}
            | {"cpu_teams": "1"},
            {"merge_every": 4, "staleness_damping": "off", "precision": "float32", "cpu_teams": 1},
        ),
    ],
)
def test_workers_receive_the_settings(flags, sent):
    assert values(welcome(**flags), sent) == sent


def test_changes_of_a_wide_sparse_layer_are_not_damped_by_weights_unless_that_is_chosen():
    sizes = SetSizes(100, 50_000, sparse=True, stored=300, max_stored=9)
    for given, sent in (("auto", "root"), ("per-weight", "per-weight")):
        chosen, data, network, plan = planned(sizes=sizes, hidden=(8,), staleness_damping=given)
        assert plan.training.staleness_damping == sent
        assert (policy_settings(chosen, data, network).stale_cost < 1) == (sent == "per-weight")


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
    *_, network, plan = planned(kind, outputs, **flags)
    assert network.loss == loss and (plan.training.lsh is not None) is hashed
    many = outputs >= MANY and flags.get("hidden") != ""
    assert network.output_major is (hashed or many)
    assert (plan.training.optimizer.warm_up == 0) is (network.output_major or network.linear)


def test_what_cannot_be_hashed_is_refused():
    for kind, outputs in (("binary", 1), ("real", 20)):
        with pytest.raises(UsageError, match="these data have none"):
            planned(kind, outputs, output="lsh")
    with pytest.raises(UsageError, match="needs a hidden layer"):
        planned("multilabel", 20, output="lsh", hidden="")


@pytest.mark.parametrize(
    ("flags", "sent"),
    [
        ({"lsh": "dwta:K=2,L=9", "seed": 7}, {"hashes": 2, "tables": 9, "seed": 7}),
        ({}, {"background": True, "rehash": REHASH}),
        ({"deterministic": True, "epochs": 1}, {"background": False}),
        ({"cluster": "local"}, {"rehash": REHASH_OF_SERVERS}),
        ({"cluster": "local", "lsh": "auto:rehash=70"}, {"rehash": 70}),
    ],
)
def test_workers_receive_the_hashing_settings(flags, sent):
    assert values(welcome("multilabel", 20, output="lsh", **flags).lsh, sent) == sent


def test_label_vectors_need_a_hashed_layer_and_sparse_rows():
    sparse = SetSizes(100, 30, sparse=True, stored=500)
    for sizes, output, setting, has in (
        (sparse, "lsh", "auto", True),
        (sparse, "lsh", "off", False),
        (sparse, "dense", "auto", False),
        (DENSE, "lsh", "auto", False),
    ):
        flags = {"output": output, "label_vectors": setting}
        parts = planned("multilabel", 20, sizes, **flags)
        assert has_label_vectors(*parts[:2]) == has
        assert ("label vectors" in memory_for(*parts, ())) == has
    for sizes, flags, need in (
        (sparse, {"output": "dense"}, "a hashed output layer"),
        (DENSE, {"output": "lsh"}, "sparse rows"),
        (sparse, {"output": "lsh", "cluster": "local", "data_copies": 1}, "all rows on each"),
    ):
        for setting in ("on", "2:0.25"):
            with pytest.raises(UsageError, match=f"^--label-vectors {setting} needs {need}"):
                planned("multilabel", 20, sizes, label_vectors=setting, **flags)
    with pytest.raises(UsageError, match=r"--label-vectors 2:0\.25:3 needs one model"):
        planned("multilabel", 20, sparse, output="lsh", label_vectors="2:0.25:3", members=2)


def test_nearest_rows_need_label_vectors_and_few_training_rows():
    for stored, setting, has in (
        (10**7, "auto", True),
        (10**9, "auto", False),
        (10**7, "off", False),
    ):
        sizes = SetSizes(10**6, 30, sparse=True, stored=stored)
        parts = planned("multilabel", 20, sizes, output="lsh", nearest_rows=setting)
        assert has_nearest_rows(*parts[:2]) == has
        needed = memory_for(*parts, ())["label vectors"]
        assert (needed > 48 * stored) == has
    for stored, flags, need in (
        (10**7, {"label_vectors": "off"}, "label vectors, without --label-vectors off"),
        (10**7, {"output": "dense"}, "a hashed output layer"),
        (10**9, {}, "at most 16,777,216 values of training rows; got 50,000,000"),
    ):
        sizes = SetSizes(10**6, 30, sparse=True, stored=stored)
        with pytest.raises(UsageError, match=f"^--nearest-rows 2 needs {need}"):
            planned("multilabel", 20, sizes, **{"output": "lsh", "nearest_rows": "2"} | flags)


def test_models_trained_on_divided_data_are_compared_only_by_sums_over_rows():
    assert planned(cluster="local", metric="auc")[-1].stopping.metric == "auc"
    divided = {"cluster": "local", "data_copies": 1}
    assert planned(**divided, metric="accuracy")[-1].stopping.metric == "accuracy"
    with pytest.raises(UsageError, match=r"auc .* logistic with --data-copies; .* loss, accuracy$"):
        planned(**divided, metric="auc")


def test_what_has_no_decision_threshold_is_refused():
    planned("binary", 1, threshold="f1")
    for given, need in (
        ({"kind": "classes", "outputs": 3}, "two classes with .*; got loss softmax"),
        ({"kind": "binary", "loss": "hinge"}, "two classes with .*; got loss hinge"),
        ({"kind": "binary", "cluster": "local", "data_copies": 1}, "the labels of all validation"),
    ):
        with pytest.raises(UsageError, match=f"^--threshold f1 needs {need}"):
            planned(**given, threshold="f1")


def test_label_smoothing_and_temperature_need_one_class_per_row():
    three, lists = {"kind": "classes", "outputs": 3}, {"kind": "multilabel", "outputs": 20}
    smooth = {"label_smoothing": 0.1}
    for given in ({}, three, {"kind": "classes", "outputs": MANY, "output": "dense"}):
        assert welcome(**given, **smooth).label_smoothing == 0.1
    for setting in (smooth, {"temperature": "auto"}, {"temperature": "1.5"}):
        for given in ({"kind": "real"}, {"loss": "hinge"}, lists, lists | {"loss": "softmax"}):
            with pytest.raises(UsageError, match=r"needs one class per row .*; got loss"):
                planned(**given, **setting)
    divided, many = {"cluster": "local", "data_copies": 1}, SetSizes(1 << 23, 30, sparse=False)
    for given, setting, need in (
        ({"kind": "classes", "outputs": MANY}, smooth, "--output dense, because a hashed"),
        (divided, {"temperature": "auto"}, "the labels of all validation rows"),
        ({**three, "outputs": 6, "sizes": many}, {"temperature": "1.5"}, "at most 16777216 scores"),
    ):
        with pytest.raises(UsageError, match=f"needs {need}"):
            planned(**given, **setting)


def test_dropout_needs_hidden_layers_with_relu():
    sent = welcome(dropout=0.2, seed=5)
    assert (sent.dropout, sent.seed) == (0.2, 5)
    planned(hidden=(), dropout=0.0)
    for flags, got in (({"hidden": ()}, "none"), ({"activation": "selu"}, "selu")):
        need = f"^--dropout 0.2 needs hidden layers with activation relu; got {got}$"
        with pytest.raises(UsageError, match=need):
            planned(**flags, dropout=0.2)


def test_augmentation_needs_pictures_that_are_larger_than_its_shift():
    pictures, none = {"layers": "conv:2x2x2"}, {}
    for flags, shape, augment, above, got in (
        (none, (), "flip", 1, "no --layers"),
        ({"layers": "lstm:4"}, (1, 10, 3), "flip", 1, "1x10x3"),
        (pictures, (6, 5, 1), "flip,shift:5", 5, "6x5x1"),
    ):
        need = f"--augment {augment} needs pictures .* above {above}; got {got}$"
        with pytest.raises(UsageError, match=need):
            planned(**flags, augment=augment, shape=shape)
    sent = welcome(**pictures, augment="flip,shift:4", shape=(6, 5, 1), seed=8)
    assert sent.augmentation == Augmentation((6, 5, 1), True, 4, 8)
    assert welcome(**pictures, augment="shift:1", shape=(6, 5, 1)).augmentation[1:3] == (False, 1)
    assert welcome(**pictures, shape=(6, 5, 1)).augmentation is None


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
    assert planned("multilabel", MANY, **flags)[-1].stopping.average is average


@pytest.mark.parametrize(
    ("flags", "epochs", "patience"),
    [
        ({}, 240, 60),
        ({"epochs": 3}, 3, 0),
        ({"max_seconds": 9.0}, None, 0),
        ({"max_rows": 3 * DENSE.rows + 1}, 4, 0),
        ({"max_rows": 3 * DENSE.rows, "refit": True, "epochs": 9, "patience": 5}, 3, 0),
        ({"target_loss": 0.1}, 2400, 60),
        ({"target_loss": 0.1, "max_seconds": 9.0}, None, 0),
        ({"epochs": 3, "target_loss": 0.1}, 3, 0),
        ({"epochs": 300, "patience": 5}, 300, 5),
        ({"patience": 0}, 240, 0),
        ({"schedule": "cosine"}, 240, 0),
        ({"schedule": "cosine", "patience": 5, "target_loss": 0.1}, 2400, 5),
    ],
)
def test_patience_applies_unless_another_limit_is_given(flags, epochs, patience):
    ending = planned(**flags)[-1].stopping
    assert (ending.epochs, ending.patience) == (epochs, patience)


SPARSE = SetSizes(2_000, 30, sparse=True, stored=18_000, max_stored=9)
WIDE = SetSizes(2_000, 2_001, sparse=True, stored=18_000, max_stored=9)
MANY_ROWS = SetSizes(2_000, 30, sparse=False)
TABULAR = "tabular", "adam", "cosine", 1.0
FAST = "fast", "adagrad", "constant", pytest.approx(0.0008)


@pytest.mark.parametrize(
    ("flags", "sizes", "chosen"),
    [
        ({}, MANY_ROWS, TABULAR),
        ({"loss": "squared"}, MANY_ROWS, (*TABULAR[:3], 0.2)),
        ({}, DENSE, (*FAST[:3], pytest.approx(0.0198))),  # few rows
        ({"loss": "squared"}, SPARSE, FAST),
        ({"hidden": ""}, MANY_ROWS, FAST),
        ({"hidden": ""}, SPARSE, ("linear", "adam", "cosine", FAST[3])),
        ({}, WIDE, ("linear", "adam", "cosine", FAST[3])),
        ({"target_loss": 0.1}, MANY_ROWS, FAST),
        ({"lr": 0.1}, MANY_ROWS, FAST),
        ({"optimizer": "adam"}, MANY_ROWS, ("fast", "adam", *FAST[2:])),
        ({"recipe": "tabular", "optimizer": "sgd"}, MANY_ROWS, ("tabular", "sgd", *FAST[2:])),
        ({"recipe": "tabular", "lr": 0.1, "l2": 0.5}, SPARSE, (*TABULAR[:3], 0.5)),
        ({"max_seconds": 9.0}, MANY_ROWS, ("tabular", "adam", "constant", 1.0)),
        ({"patience": 5}, MANY_ROWS, ("tabular", "adam", "constant", 1.0)),
        ({"patience": 5, "schedule": "cosine"}, MANY_ROWS, TABULAR),
        (
            {"refit": True, "max_rows": 9, "patience": 5},
            MANY_ROWS,
            ("tabular", "adam", "constant", 1.0),
        ),
    ],
)
def test_a_recipe_follows_from_the_data_and_what_the_user_has_chosen(flags, sizes, chosen):
    kind = "real" if "loss" in flags else "binary"
    given, _, _, plan = planned(kind, sizes=sizes, **{"lr": None} | flags)
    optimizer = plan.training.optimizer
    found = given.recipe, optimizer.name, plan.learning_rate.schedule, optimizer.l2
    assert found == chosen


@pytest.mark.parametrize(
    ("flags", "recipe", "optimizer", "rate"),
    [
        ({"target_loss": 0.1}, "tabular", "adam", 0.002),  # also with few rows
        ({"lr": 0.02}, "tabular", "adam", 0.02),
        ({"optimizer": "adam"}, "fast", "adam", 0.002),
        ({"cluster": "local"}, "fast", "adagrad", 0.0075),
    ],
)
def test_networks_with_layers_have_adam_with_a_rate_of_their_own(flags, recipe, optimizer, rate):
    flags = {"lr": None, "layers": "pool:2"} | flags
    given, _, _, plan = planned(shape=(6, 5, 1), **flags)
    assert (given.recipe, given.optimizer, plan.learning_rate.base) == (recipe, optimizer, rate)


@pytest.mark.parametrize(
    ("kind", "outputs", "sizes", "flags", "hidden"),
    [
        ("binary", 1, MANY_ROWS, {}, (512, 512)),
        ("binary", 1, SPARSE, {}, (256,)),
        ("real", 1, WIDE, {}, ()),
        ("binary", 1, WIDE, {"hidden": "8"}, (8,)),
        ("multilabel", 20, WIDE, {}, (512, 512)),
        ("classes", MANY, WIDE, {}, (128,)),
        ("classes", MANY, WIDE, {"output": "dense"}, (512, 512)),
        ("classes", 20, WIDE, {"output": "lsh"}, (128,)),
        ("binary", 1, WIDE, {"cluster": "local"}, (512, 512)),
    ],
)
def test_hidden_layers_follow_from_rows_features_and_labels(kind, outputs, sizes, flags, hidden):
    assert planned(kind, outputs, sizes, **flags)[2].hidden == hidden


def test_a_schedule_extends_over_the_epochs_of_the_run():
    rate = planned(schedule="cosine", epochs=30, max_seconds=9.0)[-1].learning_rate
    assert (rate.schedule, rate.epochs) == ("cosine", 30)
    with pytest.raises(UsageError, match="--schedule cosine needs the number of epochs"):
        planned(schedule="cosine", max_seconds=9.0)


@pytest.mark.parametrize(
    ("flags", "cpu", "l2"),  # None: the limit depends on the teams of each worker
    [({}, None, 0.0198), ({"l2": 0.0, "cpu_batch": "2:32", "lr_scaling": "none"}, (2, 32), 0.0)],
)
def test_limits_and_weight_decay_are_those_given_or_found(flags, cpu, l2):
    plan = planned(**flags)[-1]
    assert plan.learning_rate.scaling == flags.get("lr_scaling", "sqrt")
    assert plan.limits.cpu == cpu and plan.training.optimizer.l2 == pytest.approx(l2)


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
    ("flags", "cpu"),
    [({}, (64, 64)), ({"cpu_batch": BatchLimits(4, 8)}, (4, 8)), ({"policy": "hogbatch"}, None)],
)
def test_a_cpu_keeps_its_largest_batch_with_a_hashed_output_layer(flags, cpu):
    """Unless the user sets batches; other networks have measured limits."""
    assert limits_for(config(**flags), 490_000, hashed=True).cpu == cpu
    assert limits_for(config(), 30_000).cpu is None


@pytest.mark.parametrize(
    ("flags", "grows"),
    [
        ({"hidden": (16,)}, False),  # most of the work is in the sparse first layer
        ({"hidden": (16,), "cpu_teams": 1}, True),
        ({"hidden": (64, 64)}, True),
        ({"hidden": (64, 64), "output": "lsh", "label_vectors": "off"}, False),
    ],
)
def test_the_memory_of_a_thread_grows_with_their_number_only_where_they_are_in_a_team(flags, grows):
    sizes = SetSizes(40_000, 58, sparse=True, stored=360_000, max_stored=9)
    parts = planned("classes", 4, sizes, **flags)

    def per_thread(threads):
        needed = memory_for(*parts, (WorkerRequest("cpu", threads=threads),))
        return needed["working memory of threads"] / (threads + 1)

    assert (per_thread(64) > 1.01 * per_thread(1)) is grows


@pytest.mark.parametrize(
    ("flags", "small"),
    [
        ({}, True),
        ({"epochs": 100_000}, False),
        ({"hidden": (4096, 4096)}, False),
        ({"epochs": None, "max_seconds": 1.0}, False),  # which may be any number of epochs
        ({"workers": "cpu:1"}, False),
        ({"deterministic": True}, True),
        ({"start_with": 2}, False),
        ({"cpu_teams": 1}, False),
        ({"average": "on"}, False),
    ],
)
def test_small_runs_are_those_with_few_multiplications(flags, small):
    sizes = SetSizes(32_561, 123, sparse=True, stored=451_592, max_stored=14)
    given, data, network, plan = planned(sizes=sizes, **{"hidden": (16,), "epochs": 10} | flags)
    assert is_small(given, plan, network, data.train_sizes) is small


@pytest.mark.parametrize(("rows", "small"), [(500, True), (2_000, False)])
def test_a_few_hundred_rows_are_small_with_default_settings(rows, small):
    given, data, network, plan = planned(sizes=SetSizes(rows, 12, sparse=False))
    assert is_small(given, plan, network, data.train_sizes) is small


def test_a_hashed_output_layer_is_never_small():
    flags = {"output": "lsh", "average": "off", "hidden": (4,), "epochs": 1}
    given, data, network, plan = planned("multilabel", 20, **flags)
    assert not is_small(given, plan, network, data.train_sizes)
