"""The recommended values, from the properties of optimizers, losses and data."""

import pytest

from hogbatch.config.losses import LOSSES
from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.config.train import TrainConfig
from hogbatch.policy.limits import largest_cpu_batch
from hogbatch.run import defaults
from hogbatch.run.defaults import MAX_RATE, MIN_RATE
from hogbatch.run.planning import epochs_for

RATES = {name: spec.learning_rate for name, spec in OPTIMIZERS.items()}
ADAPTIVE = [name for name, spec in OPTIMIZERS.items() if spec.adaptive]


def rate(optimizer, loss="logistic", linear=True, mean_square=1.0, value_square=1.0, **others):
    squares = {"mean_square": mean_square, "value_square": value_square}
    return defaults.learning_rate(optimizer, loss, linear=linear, **squares, **others)


def test_the_rate_of_a_deep_network_depends_on_its_loss_and_not_on_the_data():
    steep = ("squared", "squared-log", "poisson")
    fractions = {"multilabel": 0.5} | dict.fromkeys(steep, 0.2)  # of those that are not 1
    for name, loss in ((name, loss) for name in OPTIMIZERS for loss in LOSSES):
        fraction = fractions.get(loss, 1.0)
        if name in ADAPTIVE:
            unbounded = {"adagrad": 0.4, "adam": 3.0}[name]
            fraction = unbounded if loss in steep else 1.0
        for squares in ((0.1, 10.0), (100.0, 0.01)):
            assert rate(name, loss, False, *squares) == pytest.approx(fraction * RATES[name])


@pytest.mark.parametrize(
    ("optimizer", "loss", "data", "expected"),
    [
        # SGD is stable up to 1 / E|x|^2.
        *(("sgd", "logistic", {"mean_square": x}, y) for x, y in ((1.0, 1.0), (40.0, 0.025))),
        *(("sgd", "logistic", {"mean_square": x}, MAX_RATE) for x in (0.01, 0.0)),
        ("sgd", "logistic", {"mean_square": 1e9}, MIN_RATE),
        ("sgd", "squared", {"mean_square": 40.0}, 0.2 * 0.025),
        ("momentum", "logistic", {"mean_square": 40.0}, 0.1 * 0.025),
        # Adagrad moves a weight by about the rate; small values need larger weights.
        *(
            ("adagrad", "squared", {"mean_square": 7.0, "value_square": x}, y * RATES["adagrad"])
            for x, y in ((1.0, 4), (0.01, 40), (100.0, 0.4))
        ),
        *(
            ("adagrad", "logistic", {"mean_square": 7.0, "value_square": x}, y * RATES["adagrad"])
            for x, y in ((1.0, 27), (0.01, 40), (100.0, 27))
        ),
        ("adagrad", "logistic", {"value_square": 0.0}, MAX_RATE),
    ],
)
def test_the_rate_of_a_linear_model_follows_its_data(optimizer, loss, data, expected):
    assert rate(optimizer, loss, **data) == pytest.approx(expected)


def test_a_hashed_output_layer_has_rates_of_its_own():
    found = {name: rate(name, "softmax", False, hashed=True) for name in OPTIMIZERS}
    assert found == RATES | {"adagrad": 0.025, "adam": 0.002}


def test_networks_with_layers_have_one_rate_of_adam_for_all_losses():
    for loss in ("squared", "softmax"):
        assert rate("adam", loss, False, layers=True) == 0.002
        assert rate("adagrad", loss, False, layers=True) == rate("adagrad", loss, False)


@pytest.mark.parametrize(
    ("rows", "batch", "epochs", "patience"),
    [
        *((1, 8, 24_000, 6000), (96, 8, 250, 62), (300, 9, 90, 22), (1_280, 40, 94, 23)),
        *((6_400, 64, 30, 10), (19_200, 64, 10, 10), (580_000, 128, 10, 10)),
    ],
)
def test_fewer_rows_have_more_epochs_and_smaller_batches(rows, batch, epochs, patience):
    assert (largest_cpu_batch(rows), defaults.epochs(rows)) == (batch, epochs)
    assert defaults.patience(rows) == patience
    assert epochs_for(TrainConfig(target_loss=0.1), rows) == 10 * epochs


def test_weight_decay_fades_out_as_rows_grow():
    penalties = [defaults.weight_decay(rows) for rows in (96, 1_000, 9_999, 10_000, 10**6)]
    assert penalties == pytest.approx([0.020633, 0.0018, 2e-8, 0.0, 0.0], rel=1e-3)


def test_the_decay_of_a_recipe_falls_with_the_rows_of_large_sets():
    squared, softmax, tabular = LOSSES["squared"], LOSSES["softmax"], defaults.RECIPES["tabular"]
    assert [tabular.decoupled_decay(softmax, rows) for rows in (9, 3_000, 12_000)] == [1, 1, 0.25]
    assert tabular.decoupled_decay(squared, 6_000) == pytest.approx(0.1)
    assert defaults.RECIPES["fast"].decoupled_decay(squared, 9) is None


def test_the_critical_batch_follows_the_rows():
    for rows, dense, sparse in ((100, 64, 1536), (12_000, 300, 1536), (160_000, 768, 10_000)):
        assert defaults.critical_batch(rows, dense=True) == dense
        assert defaults.critical_batch(rows, dense=False) == sparse
    assert defaults.critical_batch(10_000_000, dense=False) == 25_000
