"""Components of a run that are mock objects."""

from collections.abc import Callable
from dataclasses import fields
from unittest.mock import MagicMock

from hogbatch.run.components import RunComponents


def mock_components(part: Callable[[str], object] = lambda name: MagicMock()) -> RunComponents:
    """Components each of which is the `part` of its name."""
    made = RunComponents(*[MagicMock()] * sum(each.init for each in fields(RunComponents)))
    for each in fields(RunComponents):
        setattr(made, each.name, part(each.name))
    return made
