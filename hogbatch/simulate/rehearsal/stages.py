"""When the stages of a rehearsed batch run, in seconds since the batch began."""

from collections.abc import Sequence
from typing import NamedTuple

SHORTEST = 50e-6  # seconds; shorter stages run together with the following ones


class StageGroup(NamedTuple):
    """Some stages that run at one moment."""

    stop: int  # the first stage that does not run
    at: float


def next_pass(seconds: Sequence[float], done: int) -> StageGroup:
    """The stages after the first `done`, each of which takes `seconds`, that run together.

    They run in the middle of their time: on average, a pass reads and writes the weights of a layer
    then.
    """
    before, own, stop = sum(seconds[:done]), 0.0, done
    while stop < len(seconds) and own < SHORTEST:
        own += seconds[stop]
        stop += 1
    rest = sum(seconds[stop:])
    if rest < SHORTEST:
        stop, own = len(seconds), own + rest
    return StageGroup(stop, before + own / 2)


def next_phase(seconds: Sequence[float], done: int) -> StageGroup:
    """The next stages of a team: its first phase, which is never together with the updates."""
    return next_pass(seconds, done) if done else StageGroup(1, seconds[0] / 2)


def next_end(seconds: Sequence[float], done: int, stages: int) -> StageGroup:
    """The next of the `stages` of a batch that reads at its begin, and writes at its end."""
    return StageGroup(stages, sum(seconds)) if done else StageGroup(1, 0.0)
