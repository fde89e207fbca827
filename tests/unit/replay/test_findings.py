"""The first update after which the model was not finite, or its training loss had jumped."""

import numpy as np
import pytest

from hogbatch.replay.findings import MIN_BLOCKS, FiniteChecks, LossJumps
from hogbatch.replay.results import Update


def update(number, loss=1.0, rows=256, skipped=0):
    return Update(
        *(number, number / 10, "cpu-0", 0, 0, 0, rows, rows, 0.1, 0, loss * rows, skipped),
        np.arange(rows),
    )


def test_of_a_loss_that_jumps_the_update_before_is_named():
    jumps = LossJumps()
    losses = [1.0] * (MIN_BLOCKS + 2) + [9.0, 20.0]
    for number, loss in enumerate(losses, 1):
        jumps.add(update(number, loss))
    assert jumps.found.update.number == MIN_BLOCKS + 2
    assert jumps.found.what == "the training loss rose from 1 to 9 per row after"


def test_single_rows_with_large_losses_are_not_a_jump():
    jumps = LossJumps()
    for number in range(1, 4000):
        jumps.add(update(number, 50.0 if number % 40 == 0 else 1.0, rows=1))
    assert jumps.found is None


def test_losses_that_fall_are_not_a_jump():
    jumps = LossJumps()
    for number in range(1, 50):
        jumps.add(update(number, 10.0 / number))
    assert jumps.found is None


@pytest.mark.parametrize("first", [None, 4])
def test_the_update_that_made_the_model_not_finite(first):
    """Without a check after each update, only the interval is known."""
    state = {"number": 0}
    checks = FiniteChecks(lambda: "layers.0.bias[1]" if state["number"] >= 6 else "", first)
    for number in range(1, 10):
        state["number"] = number
        checks.add(update(number, skipped=3 if number > 7 else 0))
        if number == 3:
            checks.check(number)
    if first is None:
        assert (checks.finite, checks.suspect, checks.found) == (3, 8, None)
    else:
        assert checks.found.update.number == 6
        assert checks.found.what == "the model was not finite at layers.0.bias[1] after"


def test_rows_that_were_skipped_do_not_make_a_finite_model_suspect():
    checks = FiniteChecks(lambda: "")
    for number in range(1, 5):
        checks.add(update(number, skipped=1))
    assert checks.suspect is None and checks.finite == 4
