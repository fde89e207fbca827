"""The sets of rows of a run."""

from typing import Final, Literal, get_args

# Training rows; rows by which the model to keep and the end of the run are chosen; and rows that
# choose nothing, on which only the kept model is evaluated.
SetName = Literal["train", "validation", "test"]
SET_NAMES: Final[tuple[SetName, ...]] = get_args(SetName)
