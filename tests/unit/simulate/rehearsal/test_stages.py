"""The times of the stages of a batch."""

import pytest

from hogbatch.simulate.rehearsal.cpu import SHORTEST, next_pass, next_phase

LONG, SHORT = 4 * SHORTEST, SHORTEST / 3


def steps(seconds, following):
    """All steps of a batch."""
    found = [following(seconds, 0)]
    while found[-1].stop < len(seconds):
        found.append(following(seconds, found[-1].stop))
    return found


@pytest.mark.parametrize(
    ("seconds", "following", "expected"),
    [
        (
            [SHORT, SHORT, LONG, LONG],
            next_pass,
            [(3, SHORT + LONG / 2), (4, 2 * SHORT + 1.5 * LONG)],
        ),
        (
            [LONG, LONG, SHORT, SHORT],
            next_pass,
            [(1, LONG / 2), (4, LONG + (LONG + 2 * SHORT) / 2)],
        ),
        ([SHORT, SHORT / 4, SHORT / 4], next_phase, [(1, SHORT / 2), (3, 1.25 * SHORT)]),
    ],
    ids=["short first", "short last", "short batch of a team"],
)
def test_stages_run_in_the_middle_of_their_time_short_ones_together(seconds, following, expected):
    """A team never reads in the middle of its updates."""
    assert steps(seconds, following) == [(stop, pytest.approx(at)) for stop, at in expected]
