import pytest

from hogbatch.losses import LOSSES
from hogbatch.optim import OPTIMIZERS
from hogbatch.planner.recommend import COARSEST, FINEST, learning_rate


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("name", ["adagrad", "adam"])
def test_an_optimizer_that_scales_its_steps_has_one_rate_for_all_data(name, linear, loss):
    rates = {learning_rate(name, loss, linear=linear, mean_square=m) for m in (0.1, 1, 100)}
    assert rates == {OPTIMIZERS[name].learning_rate}


@pytest.mark.parametrize(
    ("loss", "share"), [("logistic", 1), ("softmax", 1), ("multilabel", 0.5), ("squared", 0.2)]
)
def test_the_rate_of_a_deep_network_depends_on_its_loss(loss, share):
    for mean_square in (0.1, 100.0):
        rate = learning_rate("sgd", loss, linear=False, mean_square=mean_square)
        assert rate == OPTIMIZERS["sgd"].learning_rate * share


@pytest.mark.parametrize(
    ("mean_square", "rate"),
    [(1.0, 1.0), (40.0, 0.025), (0.01, COARSEST), (0.0, COARSEST), (1e9, FINEST)],
)
def test_the_rate_of_a_linear_model_follows_its_data(mean_square, rate):
    assert learning_rate("sgd", "logistic", linear=True, mean_square=mean_square) == rate


def test_momentum_takes_the_smaller_steps_that_its_velocity_adds_up():
    rate = learning_rate("momentum", "logistic", linear=True, mean_square=40.0)
    assert rate == pytest.approx(0.025 * (1 - OPTIMIZERS["momentum"].momentum))


def test_a_squared_loss_is_stable_at_smaller_steps():
    rate = learning_rate("sgd", "squared", linear=True, mean_square=40.0)
    assert rate == pytest.approx(0.2 * 0.025)
