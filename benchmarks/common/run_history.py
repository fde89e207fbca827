"""Checks the history of a run against its guarantees, after the run.

The idea is Jepsen's (Kingsbury): processes are broken while a history is recorded, and the history
is checked against a model. Here the history is events.jsonl, divided into the lives of the
coordinator, and the model is a ledger: in each life, every row of an epoch is acknowledged exactly
once. A coordinator that resumes starts from its checkpoint with the rows that were left then.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hogbatch.events.event import EpochEnded, Evaluation, Event, LeaseDone, Quarantined, Resumed

Rows = tuple[int, int]  # [start, stop)


@dataclass(frozen=True, slots=True)
class Life:
    """The events of one life of the coordinator, and its starting point."""

    events: Sequence[Event]
    rows: int = 0  # trained on before it, by its initial model
    epoch: int = 0
    todo: Sequence[Rows] | None = None  # remaining rows of `epoch`; None: all

    @classmethod
    def of(cls, events: Sequence[Event]) -> "Life":
        """The life that wrote `events`; its "resumed" event gives the starting point."""
        for event in events:
            if isinstance(event, Resumed):
                todo = [(start, stop) for start, stop in event.todo]
                return cls(events, event.rows, event.epoch, todo)
        return cls(events)

    @property
    def rows_at_the_end(self) -> int:
        """Rows trained on since the start of the run."""
        return self.rows + sum(_count(spans) for spans in trained(self.events).values())


def audit(lives: Sequence[Life], rows: int) -> list[str]:
    """Violations for the `rows` rows of each epoch, one sentence each; empty if there are none."""
    faults: list[str] = []
    quarantined: dict[int, list[Rows]] = defaultdict(list)  # by epoch
    for number, life in enumerate(lives):
        for event in life.events:
            if isinstance(event, Quarantined):
                quarantined[event.epoch].append(_span(event))
        found = [*_order(life), *_coverage(life, rows, quarantined)]
        faults += [f"life {number}, {fault}" for fault in found]
    return faults


def trained(events: Iterable[Event]) -> dict[int, list[Rows]]:
    """The acknowledged rows, by epoch."""
    done: dict[int, list[Rows]] = defaultdict(list)
    for event in events:
        if isinstance(event, LeaseDone):
            done[event.epoch].append(_span(event))
    return done


def _order(life: Life) -> list[str]:
    """Epochs that were skipped, ended twice, or continued after their end."""
    faults, current = [], life.epoch
    for event in life.events:
        if isinstance(event, LeaseDone | EpochEnded) and event.epoch != current:
            faults.append(f"{event.name} of epoch {event.epoch} in epoch {current}")
        current += isinstance(event, EpochEnded)
    return faults


def _coverage(life: Life, rows: int, quarantined: dict[int, list[Rows]]) -> list[str]:
    """Rows acknowledged twice or never."""
    faults = []
    done = trained(life.events)
    sizes = {e.epoch: e.rows for e in life.events if isinstance(e, EpochEnded)}
    for epoch in sorted(done.keys() | sizes.keys()):
        covered = [*done[epoch], *_quarantined_in(life, epoch)]
        if twice := _overlap(covered):
            faults.append(f"epoch {epoch}: rows {twice} were acknowledged twice")
        if epoch not in sizes:  # the life ended during it
            continue
        left_out = sum(_count(spans) for e, spans in quarantined.items() if e < epoch)
        if not rows - left_out <= sizes[epoch] <= rows:
            faults.append(f"epoch {epoch} had {sizes[epoch]} rows instead of {rows - left_out}")
        resumed = epoch == life.epoch and life.todo is not None
        wanted = (life.todo or ()) if resumed else [(0, sizes[epoch])]
        if _joined(covered) != _joined(wanted):
            faults.append(f"epoch {epoch}: rows {_joined(covered)} were done, of {_joined(wanted)}")
    return faults


def _quarantined_in(life: Life, epoch: int) -> list[Rows]:
    found = (event for event in life.events if isinstance(event, Quarantined))
    return [_span(event) for event in found if event.epoch == epoch]


def _span(event: LeaseDone | Quarantined) -> Rows:
    start, stop = event.rows
    return start, stop


def _count(spans: Iterable[Rows]) -> int:
    return sum(stop - start for start, stop in spans)


def _overlap(spans: Iterable[Rows]) -> Rows | None:
    """The first rows contained in two of `spans`."""
    for (_, left), (start, stop) in pairwise(sorted(spans)):
        if start < left:
            return start, min(left, stop)
    return None


def _joined(spans: Iterable[Rows]) -> list[Rows]:
    """The same rows in the minimum number of spans."""
    joined: list[Rows] = []
    for start, stop in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(stop, joined[-1][1])
        else:
            joined.append((start, stop))
    return joined


def check_summary(summary: dict[str, Any], last: Life) -> list[str]:
    """Differences between summary.json and the events of the last life."""
    losses = [event.validation_loss for event in last.events if isinstance(event, Evaluation)]
    shown = [entry["validation_loss"] for entry in summary["history"]]
    workers = sum(worker["rows"] for worker in summary["workers"])
    claims = [
        ("rows", summary["rows"], last.rows_at_the_end),
        ("rows of all workers", workers, summary["rows"]),
        ("the last validation losses", shown[len(shown) - len(losses) :], losses),
    ]
    return [
        f"summary.json: {what} {claimed}, expected {seen}"
        for what, claimed, seen in claims
        if claimed != seen
    ]
