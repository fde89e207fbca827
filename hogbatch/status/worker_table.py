"""The workers of a run as rows of a table, for reports and for the live view."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from hogbatch.machine.printable import printable
from hogbatch.status.state import RunState
from hogbatch.status.workers import ObservedWorker

HEADER: Final = ("worker", "device", "batch", "updates", "share", "rows/s", "util.", "stale", "")
NUMERIC: Final = range(2, 8)  # columns that are aligned on the right

Cells = tuple[str, ...]  # one for each column of HEADER


class WorkerTable(NamedTuple):
    """The rows of a table, and how many workers that have left are not in it."""

    rows: list[Cells]  # without HEADER
    left_out: int


def worker_table(run: RunState, active: bool, most_gone: int) -> WorkerTable:
    """All workers that are present, and of those that have left the last `most_gone`.

    `active`: the run may still train, so that states are shown.
    """
    gone = [worker for worker in run.workers if worker.left_at is not None]
    left_out = gone[: max(0, len(gone) - most_gone)]
    shown = [worker for worker in run.workers if worker not in left_out]
    return WorkerTable([_cells(worker, run, active) for worker in shown], len(left_out))


def aligned(rows: Sequence[Cells], width: int, columns: Sequence[int] | None = None) -> list[str]:
    """HEADER and the rows as lines, with the gaps that `width` permits; `columns`: only these."""
    chosen = range(len(HEADER)) if columns is None else columns
    widths = column_widths(rows)
    gap = "  " if sum(widths[n] for n in chosen) + 2 * len(chosen) <= width else " "
    lines = []
    for row in (HEADER, *rows):
        cells = [
            row[n].rjust(widths[n]) if n in NUMERIC else row[n].ljust(widths[n]) for n in chosen
        ]
        lines.append(gap.join(cells).rstrip())
    return lines


def column_widths(rows: Sequence[Cells]) -> list[int]:
    """The widths of the columns of a table with HEADER."""
    return [max(map(len, column)) for column in zip(HEADER, *rows, strict=True)]


def _cells(worker: ObservedWorker, run: RunState, active: bool) -> Cells:
    """The row of one worker."""
    speed = worker_speed(worker, run)
    utilization = worker.utilization[-1][1] if worker.utilization else None
    return (
        printable(worker.name),
        printable(worker.device),
        "-" if worker.batch_size is None else str(worker.batch_size),
        f"{worker.updates.value:,}",
        f"{worker.updates.value / run.updates:.0%}" if run.updates else "-",
        "-" if speed is None else f"{speed:,.0f}",
        "-" if utilization is None else f"{utilization:.0%}",
        "-" if worker.staleness is None else f"{worker.staleness:.1f}",
        _state(worker, run, active),
    )


def _state(worker: ObservedWorker, run: RunState, active: bool) -> str:
    if worker.left_at is not None:
        return f"{worker.state} {worker.left_at:.1f} s"
    if not active:
        return ""
    return "ready" if worker.state == "trains" and not run.trains else worker.state


def worker_speed(worker: ObservedWorker, run: RunState) -> float | None:
    """Recent rows per second of a worker; after the end of the run, or its own, its mean."""
    if run.ended is None and worker.left_at is None:
        return worker.rows.speed(run.seconds)
    until = run.seconds if worker.left_at is None else worker.left_at
    elapsed = until - worker.joined_at
    return worker.rows.value / elapsed if elapsed > 0 else None
