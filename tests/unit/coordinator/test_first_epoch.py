"""Evaluations of the initial model and within the first epoch."""

import pytest

from hogbatch.coordinator.commands import Keep, Report
from tests.support.coordinator_stage import of_kind


def play_to_the_end(play, loss):
    """Let the workers do all work; `loss` gives the validation loss after a number of rows."""
    while play.finish is None:
        key = next(key for key, held in play.work.items() if held)
        work, rows = play.work[key][0], play.state.progress.rows
        changes = {"loss": loss(rows) * (work.stop - work.start)} if work.task != "train" else {}
        play.done(key, **changes)
    return [[each.evaluation.rows for each in of_kind(play.said, kind)] for kind in (Report, Keep)]


@pytest.mark.parametrize(
    ("loss", "kept"),
    [(lambda rows: 1 + rows, [0]), (lambda rows: abs(300 - rows), [0, 130, 260])],
)
def test_a_model_of_the_first_epoch_or_the_initial_one_is_kept(stage, loss, kept):
    """With 1,000 rows in batches of 10, an eighth of the rows ends within the 13th batch."""
    limits = {"train_rows": 1000, "validation_rows": 50, "epochs": 2, "by_epoch": True}
    play = stage("a", "b", **limits, first_epoch=True)
    assert play_to_the_end(play, loss) == [[0, 130, 260, 520, 1000, 2000], kept]


def test_leases_end_where_the_first_evaluations_are_due(stage):
    play = stage("a", train_rows=1000, validation_rows=50, first_epoch=True, by_epoch=True)
    play_to_the_end(play, lambda rows: 1.0)
    other = stage("a", train_rows=1000, validation_rows=50, first_epoch=True, by_epoch=True)
    other.seconds_per_row = 1e-5  # longer leases
    assert play_to_the_end(other, lambda rows: 1.0)[0] == [0, 130, 260, 520, 1000]
