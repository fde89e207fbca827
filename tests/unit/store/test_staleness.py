import math

import pytest

from hogbatch.store.staleness import HISTORY, MIN_HISTORY, Damping


def see(damping, *staleness):
    """The weight of the last change."""
    return [damping.weight(each) for each in staleness][-1]


def test_a_given_beta_weights_by_the_exponential_of_the_staleness_and_off_by_nothing():
    assert see(Damping(0.1), 7) == pytest.approx(math.exp(-0.7))
    assert see(Damping("off"), *[50] * MIN_HISTORY, 10**6) == 1


def test_half_of_the_usual_staleness_weighs_what_the_paper_says():
    # Damaskinos et al. 2020: e^(-beta t / 2) = 1 / (t / 2 + 1)
    assert see(Damping("auto"), *[8] * MIN_HISTORY, 4) == pytest.approx(1 / 5)
    assert see(Damping("auto"), *[100] * MIN_HISTORY, 50) == pytest.approx(1 / 51)


def test_the_weight_of_a_change_comes_from_those_before_it():
    damping = Damping("auto")
    weights = [damping.weight(8) for _ in range(MIN_HISTORY + 1)]
    assert weights[:MIN_HISTORY] == [1.0] * MIN_HISTORY  # too few merges for a percentile
    assert weights[MIN_HISTORY] == pytest.approx(1 / 25)


def test_a_straggler_in_a_thousand_does_not_make_its_staleness_usual():
    many, straggler = [8] * (HISTORY - 1), 10_000
    assert see(Damping("auto"), *many, straggler, 4) == pytest.approx(1 / 5)


@pytest.mark.parametrize("beta", [0.0, 0.03, None])
def test_staler_changes_never_weigh_more(beta):
    damping = Damping(beta)
    see(damping, *range(HISTORY))  # later values change the percentile little
    weights = [damping.weight(staleness) for staleness in (0, 1, 10, 100, 10_000)]
    assert weights == sorted(weights, reverse=True)
    assert all(0 <= fraction <= 1 for fraction in weights)


@pytest.mark.parametrize("rule", ["root", "per-weight"])
def test_the_root_rule_weighs_by_one_over_the_root(rule):
    weights = [Damping(rule).weight(staleness) for staleness in (0, 3, 99)]
    assert weights == pytest.approx([1, 0.5, 0.1])
