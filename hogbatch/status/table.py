"""A table of runs as text, with the settings in which they differ."""

from collections.abc import Sequence
from datetime import datetime
from textwrap import wrap
from typing import Any, Final

from hogbatch.machine.printable import printable
from hogbatch.status.listing import ListedRun
from hogbatch.status.settings import as_flags
from hogbatch.telemetry.console import loss_text

HEADER: Final = ("run", "state", "test loss", "metric", "seconds", "rows/s")
NUMERIC: Final = (2, 4, 5)  # columns that are aligned on the right
MAX_NAME: Final = 26  # columns; a longer name has a line of its own
INDENT: Final = "    "


def table_lines(runs: Sequence[ListedRun], width: int) -> list[str]:
    """Two lines or more for each run: its results; start, workers and differing settings."""
    rows = [HEADER, *(_cells(run) for run in runs if run.report is not None)]
    lengths = [[len(cell) for cell in column] for column in zip(*rows, strict=True)]
    lengths[0] = [length for length in lengths[0] if length <= MAX_NAME]
    widths = list(map(max, lengths))
    lines = [_row(HEADER, widths)]
    for run in runs:
        lines += _lines_of(run, widths, width)
    return lines


def _lines_of(run: ListedRun, widths: Sequence[int], width: int) -> list[str]:
    room = width - len(INDENT)
    if run.report is None:
        problem = wrap(printable(f"damaged: {run.problem}"), room, break_on_hyphens=False)
        return [printable(run.path.name), *(INDENT + line for line in problem)]
    name, *cells = _cells(run)
    first = [_row([name, *cells], widths)]
    if len(name) > widths[0]:
        first = [name, _row(["", *cells], widths)]
    about = [datetime.fromtimestamp(run.at).strftime("%Y-%m-%d %H:%M"), run.workers]
    about += as_flags(run.settings, run.differing)
    text = printable("  ".join(filter(None, about)))
    return [*first, *(INDENT + line for line in _joined(text.split("  "), room))]


def _joined(parts: Sequence[str], room: int) -> list[str]:
    """The parts in lines of at most `room` columns; a flag and its value stay together."""
    lines = [""]
    for part in parts:
        joined = f"{lines[-1]}  {part}".strip()
        if len(joined) <= room:
            lines[-1] = joined
        else:
            lines += wrap(part, room, break_on_hyphens=False)
    return [line for line in lines if line]


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.rjust(size) if number in NUMERIC else cell.ljust(size)
        for number, (cell, size) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()


def _cells(run: ListedRun) -> tuple[str, ...]:
    report = run.report
    assert report is not None
    speed = report.run.rows_per_second
    return (
        printable(run.path.name),
        report.condition.state,
        loss_text(run.test_loss),
        f"{run.metric[0]} {run.metric[1]:.4f}" if run.metric else "-",
        f"{report.run.seconds:.2f}",
        "-" if speed is None else f"{speed:,.0f}",
    )


def run_fields(run: ListedRun) -> dict[str, Any]:
    """One run as an object for JSON."""
    fields: dict[str, Any] = {"run_dir": str(run.path), "at": run.at, "problem": run.problem}
    if run.report is None:
        return fields
    state, condition = run.report.run, run.report.condition
    return fields | {
        "state": condition.state,
        "reason": condition.reason,
        "test_loss": run.test_loss,
        "metric": run.metric[0] if run.metric else None,
        "value": run.metric[1] if run.metric else None,
        "seconds": state.seconds,
        "epochs": state.epochs,
        "rows": state.rows.value,
        "rows_per_second": state.rows_per_second,
        "workers": run.workers,
        "settings": {key: run.settings.get(key) for key in run.differing},
    }
