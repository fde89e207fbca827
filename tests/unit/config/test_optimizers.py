"""The properties in the table of optimizers, each checked against the rule on the reference."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.config.train import FLAGS
from hogbatch.kernels import contract
from hogbatch.kernels.contract import LARGEST, Hyper, Slots
from hogbatch.kernels.executor import corrected
from hogbatch.kernels.reference import NUMPY_KERNELS
from hogbatch.policy.learning_rate import SCALINGS

optimizers = pytest.mark.parametrize("spec", OPTIMIZERS.values(), ids=OPTIMIZERS)
RATE = 0.125


class State:
    """Weights with slots, and a step on them."""

    def __init__(self, spec, seen=True, l2=0.0):
        random = np.random.default_rng(0)
        self.weights = random.standard_normal(50)
        self.slots = Slots(*(np.zeros(50 if n < spec.slots else 0) for n in range(2)))
        self._kind = spec.kind
        self._hyper = Hyper(RATE, l2, spec.momentum, spec.beta2, spec.epsilon)
        if seen:
            self.step(random.standard_normal(50))

    def step(self, gradient):
        NUMPY_KERNELS.step(self._kind, self._hyper, gradient, self.slots, self.weights)
        return self


def gradients(seed, count=1):
    return np.random.default_rng(seed).standard_normal((count, 50))


def test_everything_that_lists_optimizers_lists_those_of_the_table():
    assert {name: spec.kind for name, spec in OPTIMIZERS.items()} == contract.OPTIMIZERS
    assert sorted(spec.kind for spec in OPTIMIZERS.values()) == list(range(len(OPTIMIZERS)))
    assert FLAGS["optimizer"].metavar.split("|") == ["auto", *OPTIMIZERS]


@optimizers
def test_constants_are_in_range(spec):
    assert spec.learning_rate > 0 and spec.scaling in SCALINGS
    assert spec.scaling == ("sqrt" if spec.adaptive else "linear")
    assert 0 <= spec.momentum < 1 and 0 <= spec.beta2 < 1
    assert spec.slots in (0, 1, 2) and spec.bounded != spec.adaptive
    assert (spec.epsilon > 0) == spec.adaptive  # added to a root that is divided by


@optimizers
def test_adaptive_steps_do_not_depend_on_the_size_of_gradients(spec):
    small, large = State(spec, seen=False), State(spec, seen=False)
    before, gradient = small.weights.copy(), gradients(1)[0]
    small.step(gradient), large.step(gradient * 1000)
    factor = 1 if spec.adaptive else 1000
    assert_allclose(large.weights - before, factor * (small.weights - before), rtol=1e-3)
    assert all(slot.any() for slot in small.slots[: spec.slots])
    gradient[7] = LARGEST
    assert (abs(State(spec).step(gradient).weights[7]) < 100) == spec.adaptive


@optimizers
def test_bias_correction_makes_the_first_step_as_long_as_the_learning_rate(spec):
    hyper = Hyper(RATE, 0.0, spec.momentum, spec.beta2, spec.epsilon)
    if not spec.bias_corrected:
        assert corrected(spec.kind, hyper, 1) == hyper
        return
    state = State(spec, seen=False)
    before = state.weights.copy()
    slots = state.slots
    NUMPY_KERNELS.step(
        spec.kind, corrected(spec.kind, hyper, 1), gradients(1)[0], slots, state.weights
    )
    assert_allclose(abs(state.weights - before), RATE, rtol=1e-3)


@optimizers
def test_velocity_counts_a_gradient_1_over_1_minus_momentum_times(spec):
    state = State(spec, seen=False)
    before, gradient = state.weights.copy(), gradients(1)[0]
    state.step(gradient)
    for _ in range(500):
        state.step(np.zeros(50))
    counted = np.median((before - state.weights) / (RATE * gradient))
    assert spec.velocity == (counted == pytest.approx(1 / (1 - spec.momentum)) and counted > 1)


@optimizers
def test_additive_steps_of_a_batch_are_the_sum_of_the_steps_of_its_rows(spec):
    rows = gradients(1, 5)
    together, one_by_one = State(spec).step(rows.sum(axis=0)), State(spec)
    for row in rows:
        one_by_one.step(row)
    assert np.allclose(together.weights, one_by_one.weights) == spec.additive
    assert spec.slots == 0 or not spec.additive


@optimizers
def test_whether_a_gradient_of_zero_changes_nothing(spec):
    state, same = State(spec), State(spec)
    state.step(np.zeros(50))
    unchanged = [np.array_equal(a, b) for a, b in zip(state.slots, same.slots, strict=True)]
    unchanged.append(np.array_equal(state.weights, same.weights))
    assert all(unchanged) == spec.ignores_zeros


@optimizers
def test_decoupled_decay_changes_no_slots(spec):
    gradient, before = gradients(1)[0], State(spec, seen=False).weights
    decayed, same = (State(spec, seen=False, l2=l2).step(gradient) for l2 in (0.5, 0.0))
    unchanged = [np.array_equal(a, b) for a, b in zip(decayed.slots, same.slots, strict=True)]
    assert all(unchanged) == (spec.decoupled or not spec.slots)
    if spec.decoupled:
        assert_allclose(same.weights - decayed.weights, RATE * 0.5 * before)


@optimizers
def test_summed_slots_do_not_depend_on_the_worker_that_met_a_gradient(spec):
    if not spec.slots:
        assert not spec.summed_slots
        return
    rows = gradients(1, 4)
    one, *several = (State(spec, seen=False) for _ in range(3))
    for number, row in enumerate(rows):
        one.step(row), several[number % 2].step(row)
    merged = sum(each.slots.first for each in several)
    assert np.allclose(merged, one.slots.first) == spec.summed_slots


def test_sets_of_numbers_follow_a_property():
    for name in (
        "adaptive",
        "bias_corrected",
        "bounded",
        "velocity",
        "additive",
        "ignores_zeros",
        "decoupled",
    ):
        kinds = [spec.kind for spec in OPTIMIZERS.values() if getattr(spec, name)]
        assert_array_equal(getattr(contract, name.upper()), kinds)
    assert (OPTIMIZERS["adagrad"].kind,) == contract.SUMMED_SLOTS
