import pytest

from benchmarks.gpu_acceptance.budget import REPORT_S, SHARES, SHORTEST_S, limit

TWO = {"a": 1.0, "b": 3.0}


def test_a_stage_gets_its_share_of_what_is_left():
    assert limit("a", ["b"], REPORT_S + 100, TWO) == 25
    assert limit("b", [], REPORT_S + 75, TWO) == 75


def test_time_that_a_stage_did_not_use_goes_to_the_later_ones():
    assert limit("b", [], REPORT_S + 99, TWO) == 99


def test_a_stage_without_enough_time_is_not_started():
    assert limit("b", [], REPORT_S + SHORTEST_S - 0.1, TWO) is None
    assert limit("b", [], -5, TWO) is None


def test_preflight_has_a_limit_of_its_own():
    later = list(SHARES)[1:]
    assert limit("preflight", later, 10_000) == 60
    assert limit("preflight", later, 100) < 60


def test_all_shares_together_are_the_whole_budget():
    left, given = 573.0, []
    stages = list(SHARES)
    while stages:
        stage = stages.pop(0)
        given.append(limit(stage, stages, left))
        left -= given[-1]
    assert sum(given) == pytest.approx(573.0 - REPORT_S)
