"""The current activity of a run, in words."""

from pathlib import PurePath
from typing import Final, NamedTuple

from hogbatch.data.progress import ReadProgress
from hogbatch.events.state import Condition, RunState
from hogbatch.machine.budget import byte_size

COMPILING: Final = (
    "compiling kernels: about 15 s, once per installation and kind of network; the next run loads "
    "them"
)


class Activity(NamedTuple):
    """The current activity, and the fraction of it that is done, if that is known."""

    text: str
    fraction: float | None = None
    amount: str | None = None  # done so far, in text


def preparing(text: str, progress: ReadProgress | None = None) -> Activity:
    """The activity before the first event of a run; the arguments are those of `Console.busy`."""
    if progress is None or not progress.done:
        return Activity(text)
    if progress.name is None:
        return Activity("preparing the rows: labels, split and scaling")
    name, done = PurePath(progress.name).name, progress.done
    if progress.size is None:
        return Activity(f"reading {name}", None, byte_size(int(done)))
    amount = f"{byte_size(int(min(done, progress.size)))} of {byte_size(progress.size)}"
    return Activity(f"reading {name}", progress.fraction, amount)


def running(run: RunState, condition: Condition) -> Activity | None:
    """The activity of a run that has recorded events; None if it has ended."""
    if condition.over or condition.state == "killed?":
        return None
    if run.evaluates:
        return Activity(f"evaluating the model on {run.evaluates.rows:,} {run.evaluates.set} rows")
    if run.saves:
        return Activity("training, and saving a checkpoint in the background")
    if condition.state != "waiting":
        return Activity(condition.state)
    if any(worker.state == "compiles" for worker in run.present):
        return Activity(COMPILING)
    if any(worker.state == "starts" for worker in run.present):
        return Activity("workers start and measure their speed")
    return Activity(f"waiting {condition.reason}".strip())
