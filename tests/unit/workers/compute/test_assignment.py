"""The settings of kernels that follow from an assignment."""

from hogbatch.kernels.contract import LOSSES, OPTIMIZERS, Hyper
from tests.support.assignments import assignment, examples


def test_kernels_get_the_settings_of_the_welcome():
    given = assignment(examples(4), optimizer="adam", l2=0.5)
    spec = given.welcome.optimizer
    assert given.kinds == (LOSSES["logistic"], OPTIMIZERS["adam"])
    assert given.hyper(0.25) == Hyper(
        rate=0.25, l2=0.5, momentum=spec.momentum, beta2=spec.beta2, epsilon=spec.epsilon
    )
