"""The end of a replay, as --until gives it."""

import pytest

from hogbatch.errors import UsageError
from hogbatch.replay.command import Limit, parse_limit


@pytest.mark.parametrize(
    ("text", "limit"),
    [(None, Limit()), ("2.5s", Limit(seconds=2.5)), ("3s", Limit(seconds=3.0)), ("40", Limit(40))],
)
def test_limits(text, limit):
    assert parse_limit(text) == limit


@pytest.mark.parametrize("text", ["", "s", "0", "-1", "-1s", "2.5", "nans", "1e999s", "soon"])
def test_other_texts_are_refused(text):
    with pytest.raises(UsageError, match="--until: expected a number of updates"):
        parse_limit(text)


def test_a_limit_is_reached_by_updates_or_seconds():
    assert not Limit(40).reached(39, 1e9) and Limit(40).reached(40, 0.0)
    assert not Limit(seconds=2.0).reached(10**9, 2.0) and Limit(seconds=2.0).reached(0, 2.1)
