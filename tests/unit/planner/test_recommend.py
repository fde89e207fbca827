import pytest

from hogbatch.losses import LOSSES
from hogbatch.optim import OPTIMIZERS
from hogbatch.planner.recommend import COARSEST, FINEST, learning_rate, scaling
from hogbatch.schedules import SCALINGS


def rate(optimizer, loss="logistic", linear=True, mean_square=1.0, value_square=1.0):
    return learning_rate(
        optimizer, loss, linear=linear, mean_square=mean_square, value_square=value_square
    )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", ["adagrad", "adam"])
def test_a_deep_network_has_one_rate_under_an_optimizer_that_scales_its_steps(name, loss):
    for mean_square, value_square in ((0.1, 10.0), (1.0, 1.0), (100.0, 0.01)):
        recommended = rate(name, loss, False, mean_square, value_square)
        assert recommended == OPTIMIZERS[name].learning_rate


@pytest.mark.parametrize(("value_square", "times"), [(1.0, 4), (0.01, 40), (100.0, 0.4)])
def test_such_an_optimizer_gives_a_linear_model_weights_as_large_as_values_are_small(
    value_square, times
):
    expected = pytest.approx(times * OPTIMIZERS["adagrad"].learning_rate)
    assert rate("adagrad", mean_square=7.0, value_square=value_square) == expected
    assert rate("adagrad", value_square=0.0) == COARSEST


@pytest.mark.parametrize(
    ("optimizer", "expected"), [("adagrad", 0.025), ("adam", 0.002), ("sgd", 0.05)]
)
def test_a_hashed_output_layer_has_rates_of_its_own(optimizer, expected):
    found = learning_rate(
        *(optimizer, "softmax"), linear=False, mean_square=1.0, value_square=1.0, hashed=True
    )
    assert found == expected


@pytest.mark.parametrize(
    ("loss", "share"), [("logistic", 1), ("softmax", 1), ("multilabel", 0.5), ("squared", 0.2)]
)
def test_the_rate_of_a_deep_network_depends_on_its_loss(loss, share):
    for mean_square in (0.1, 100.0):
        recommended = rate("sgd", loss, linear=False, mean_square=mean_square)
        assert recommended == OPTIMIZERS["sgd"].learning_rate * share


@pytest.mark.parametrize(
    ("mean_square", "expected"),
    [(1.0, 1.0), (40.0, 0.025), (0.01, COARSEST), (0.0, COARSEST), (1e9, FINEST)],
)
def test_the_rate_of_a_linear_model_follows_its_data(mean_square, expected):
    assert rate("sgd", mean_square=mean_square) == expected


def test_momentum_takes_the_smaller_steps_that_its_velocity_adds_up():
    expected = pytest.approx(0.025 * (1 - OPTIMIZERS["momentum"].momentum))
    assert rate("momentum", mean_square=40.0) == expected


def test_a_squared_loss_is_stable_at_smaller_steps():
    assert rate("sgd", "squared", mean_square=40.0) == pytest.approx(0.2 * 0.025)


def test_the_rate_grows_with_the_root_of_the_batch_where_steps_are_scaled():
    assert {name: scaling(name) for name in OPTIMIZERS} == {
        "sgd": "linear",
        "momentum": "linear",
        "adagrad": "sqrt",
        "adam": "sqrt",
    }
    assert set(map(scaling, OPTIMIZERS)) <= set(SCALINGS)
