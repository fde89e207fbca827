import pytest

from hogbatch.config.losses import LOSSES
from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.policy.cpu_batch import largest_cpu_batch
from hogbatch.policy.learning_rate import SCALINGS
from hogbatch.run.defaults import (
    EPOCHS,
    MAX_RATE,
    MIN_RATE,
    MIN_UPDATES,
    SMALL_ROWS,
    critical_batch,
    epochs,
    learning_rate,
    max_epochs,
    patience,
    scaling,
    weight_decay,
)


def rate(optimizer, loss="logistic", linear=True, mean_square=1.0, value_square=1.0):
    return learning_rate(
        optimizer, loss, linear=linear, mean_square=mean_square, value_square=value_square
    )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", [name for name, spec in OPTIMIZERS.items() if spec.adaptive])
def test_an_adaptive_optimizer_has_one_rate_for_deep_networks(name, loss):
    for mean_square, value_square in ((0.1, 10.0), (1.0, 1.0), (100.0, 0.01)):
        recommended = rate(name, loss, False, mean_square, value_square)
        fraction = 0.4 if (name, loss) == ("adagrad", "squared") else 1.0
        assert recommended == pytest.approx(fraction * OPTIMIZERS[name].learning_rate)


@pytest.mark.parametrize(
    ("rows", "batch", "passes"),
    [
        *((1, 8, 24_000), (96, 8, 250), (300, 9, 90), (1_280, 40, 94), (6_400, 64, 30)),
        *((19_200, 64, 10), (580_000, 64, 10)),
    ],
)
def test_fewer_rows_have_more_epochs_and_smaller_batches(rows, batch, passes):
    assert largest_cpu_batch(rows) == batch
    assert epochs(rows) == passes
    assert passes * rows >= MIN_UPDATES * batch or passes == EPOCHS


def test_patience_is_a_quarter_of_the_epochs_and_ten_at_least():
    assert [patience(rows) for rows in (96, 6_400, 580_000)] == [62, 10, 10]


def test_a_target_loss_has_ten_times_the_epochs():
    assert max_epochs(580_000) == 100


def test_weight_decay_fades_out_as_rows_grow():
    penalties = [weight_decay(rows) for rows in (96, 1_000, 9_999, SMALL_ROWS, 10**6)]
    assert penalties == sorted(penalties, reverse=True)
    assert penalties[0] == pytest.approx(0.0206, rel=0.01)
    assert penalties[2] > 0
    assert penalties[3:] == [0.0, 0.0]


@pytest.mark.parametrize(("value_square", "times"), [(1.0, 4), (0.01, 40), (100.0, 0.4)])
def test_an_adaptive_optimizer_has_larger_rates_for_linear_models_of_smaller_values(
    value_square, times
):
    base, squares = OPTIMIZERS["adagrad"].learning_rate, {"value_square": value_square}
    assert rate("adagrad", "squared", mean_square=7.0, **squares) == pytest.approx(times * base)
    bounded = pytest.approx(max(times, 27) * base)
    assert rate("adagrad", "logistic", mean_square=7.0, **squares) == bounded
    assert rate("adagrad", value_square=0.0) == MAX_RATE


@pytest.mark.parametrize(
    ("optimizer", "expected"), [("adagrad", 0.025), ("adam", 0.002), ("sgd", 0.05)]
)
def test_a_hashed_output_layer_has_rates_of_its_own(optimizer, expected):
    found = learning_rate(
        *(optimizer, "softmax"), linear=False, mean_square=1.0, value_square=1.0, hashed=True
    )
    assert found == expected


@pytest.mark.parametrize(
    ("loss", "fraction"), [("logistic", 1), ("softmax", 1), ("multilabel", 0.5), ("squared", 0.2)]
)
def test_the_rate_of_a_deep_network_depends_on_its_loss(loss, fraction):
    for mean_square in (0.1, 100.0):
        recommended = rate("sgd", loss, linear=False, mean_square=mean_square)
        assert recommended == OPTIMIZERS["sgd"].learning_rate * fraction


@pytest.mark.parametrize(
    ("mean_square", "expected"),
    [(1.0, 1.0), (40.0, 0.025), (0.01, MAX_RATE), (0.0, MAX_RATE), (1e9, MIN_RATE)],
)
def test_the_rate_of_a_linear_model_follows_its_data(mean_square, expected):
    assert rate("sgd", mean_square=mean_square) == expected


def test_momentum_takes_the_smaller_steps_that_its_velocity_adds_up():
    expected = pytest.approx(0.025 * (1 - OPTIMIZERS["momentum"].momentum))
    assert rate("momentum", mean_square=40.0) == expected


def test_a_squared_loss_is_stable_at_smaller_steps():
    assert rate("sgd", "squared", mean_square=40.0) == pytest.approx(0.2 * 0.025)


def test_the_rate_grows_with_the_root_of_the_batch_if_the_optimizer_is_adaptive():
    for name, spec in OPTIMIZERS.items():
        assert scaling(name) == ("sqrt" if spec.adaptive else "linear")
    assert set(map(scaling, OPTIMIZERS)) <= set(SCALINGS)


@pytest.mark.parametrize(("rows", "critical"), [(100, 64), (12_000, 250), (1_000_000, 768)])
def test_the_critical_batch_of_a_dense_network_follows_the_rows(rows, critical):
    assert critical_batch(rows, dense=True) == critical
    assert critical_batch(rows, dense=False) == 1536
