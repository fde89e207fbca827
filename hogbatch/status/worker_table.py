"""The workers of a run as rows of a table, for reports and for the live view."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from hogbatch.machine.printable import printable
from hogbatch.status.state import RunState
from hogbatch.status.workers import ObservedWorker

HEADER: Final = ("worker", "device", "batch", "updates", "share", "rows/s", "util.", "stale", "")
NUMERIC: Final = range(2, 8)  # columns that are aligned on the right
INDENT: Final = "  "  # of the workers of a server

Cells = tuple[str, ...]  # one for each column


class WorkerRow(NamedTuple):
    """A row of a table of workers."""

    cells: Cells
    beneath: bool = False  # it belongs to the server above it
    workers: int = 1  # that the row stands for


class WorkerTable(NamedTuple):
    """The rows of a table, and how many workers are not in it."""

    rows: list[WorkerRow]  # without the header
    left_out: int

    def limited(self, lines: int) -> "WorkerTable":
        """The rows that are shown in `lines` lines, of which workers of servers are omitted first.

        The last line says how many workers are left out, unless all others just fit.
        """
        rows = self.rows
        if len(rows) + bool(self.left_out) <= lines:
            return self
        others_fit = not self.left_out and sum(not row.beneath for row in rows) == lines
        too_many = len(rows) - (lines if others_fit else max(1, lines - 1))
        last_first = sorted(range(len(rows)), key=lambda n: (rows[n].beneath, n), reverse=True)
        out = set(last_first[:too_many])
        left_out = self.left_out + sum(rows[n].workers for n in out)
        return WorkerTable([row for n, row in enumerate(rows) if n not in out], left_out)


def worker_table(run: RunState, active: bool, most_gone: int) -> WorkerTable:
    """All workers that are present, and of those that have left the last `most_gone`.

    The workers of a server that is present are beneath it. `active`: the run may still train, so
    that states are shown.
    """
    gone = [worker for worker in run.workers if worker.left_at is not None]
    left_out = gone[: max(0, len(gone) - most_gone)]
    rows = []
    for worker in run.workers:
        if worker not in left_out:
            own = rows_of(worker, lambda each: _cells(each, run, active))
            rows += own if worker.left_at is None else own[:1]
    return WorkerTable([_indented(row) if row.beneath else row for row in rows], len(left_out))


def rows_of(worker: ObservedWorker, cells: Callable[[ObservedWorker], Cells]) -> list[WorkerRow]:
    """The row of a worker, then those of its own workers if it is a server; `cells` makes one."""
    rows = [WorkerRow(cells(worker))]
    rows += [WorkerRow(cells(each), beneath=True) for each in worker.workers]
    if worker.others:
        empty = [""] * (len(rows[0].cells) - 1)
        rows.append(WorkerRow((f"{worker.others} more", *empty), True, worker.others))
    return rows


def _indented(row: WorkerRow) -> WorkerRow:
    name, *rest = row.cells
    return row._replace(cells=(INDENT + name, *rest))


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
    speed, share = worker_speed(worker, run), update_share(worker, run)
    utilization = worker.utilization[-1][1] if worker.utilization else None
    return (
        printable(worker.name),
        printable(worker.device),
        "-" if worker.batch_size is None else str(worker.batch_size),
        f"{worker.updates.value:,}",
        "-" if share is None else f"{share:.0%}",
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


def update_share(worker: ObservedWorker, run: RunState) -> float | None:
    """The part of all updates that a worker has done; None before there are any.

    Updates of workers of a server may be known before those of the server.
    """
    return min(1.0, worker.updates.value / run.updates) if run.updates else None


def worker_speed(worker: ObservedWorker, run: RunState) -> float | None:
    """Recent rows per second of a worker; after the end of the run, or its own, its mean.

    That of a worker of a server is of the time until its last figures.
    """
    ends = [end for end in (worker.left_at, worker.measured_at) if end is not None]
    until = min(ends, default=run.seconds)
    if run.ended is None and worker.left_at is None:
        return worker.rows.speed(until)
    elapsed = until - worker.joined_at
    return worker.rows.value / elapsed if elapsed > 0 else None
