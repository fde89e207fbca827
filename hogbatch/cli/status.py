"""`hogbatch status` and `runs`: what run directories say about their runs."""

import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hogbatch.cli.parser import Parser, whole
from hogbatch.config.train import RUNS
from hogbatch.machine.printable import encodable

if TYPE_CHECKING:
    from hogbatch.views.status.run_files import RunReport

POLL_S: Final = 0.5
MIN_WIDTH: Final = 60  # columns
MAX_LIMIT: Final = 1_000_000  # runs in a list


def status(arguments: Sequence[str]) -> int:
    """Show the state of a run, from the files in its directory."""
    parser = Parser(status, "RUN_DIR [options]")
    parser.add_argument("run_dir", metavar="RUN_DIR", type=Path, help="run directory")
    parser.output.add_argument(
        "--follow",
        action="store_true",
        help="until the run has ended: on a terminal a live view, else a new report after each "
        "evaluation and event of a worker; a killed run may be resumed, so Ctrl-C ends this",
    )
    parser.output.add_argument(
        "--plain",
        action="store_true",
        help="with --follow, reports on a terminal, too, in place of the live view",
    )
    parser.output.add_argument(
        "--json", action="store_true", help="one JSON object; with --follow one per line"
    )
    options = parser.read(arguments)
    from hogbatch.views.status.run_files import RunFollower, expect_run

    expect_run(options.run_dir)
    follower = RunFollower(options.run_dir)
    if options.follow:
        _follow(follower.look, as_json=options.json, plain=options.plain or options.json)
    else:
        _print(_lines(follower.look(), as_json=options.json, indent=2))
    return 0


def runs(arguments: Sequence[str]) -> int:
    """List the runs in a directory with results and differing settings."""
    parser = Parser(runs, "[DIR] [options]")
    parser.add_argument(
        "directory",
        nargs="?",
        type=Path,
        metavar="DIR",
        default=Path(RUNS),
        help="directory with run directories (default: %(default)s)",
    )
    parser.output.add_argument(
        "--sort",
        choices=("newest", "loss", "time"),
        default="newest",
        help="order: newest first, lowest validation loss first, or least training time first "
        "(default: %(default)s)",
    )
    parser.output.add_argument(
        "--limit", metavar="N", type=whole(1, MAX_LIMIT), help="at most N runs (default: all)"
    )
    parser.output.add_argument("--json", action="store_true", help="all runs as one JSON object")
    options = parser.read(arguments)
    from hogbatch.views.status.listing import listed_runs, table_lines

    listed = listed_runs(options.directory, options.sort, options.limit)
    if options.json:
        _print([json.dumps({"directory": str(options.directory), "runs": listed}, indent=2)])
    elif listed:
        _print(table_lines(listed, _width()))
    else:
        _print([f"{options.directory} contains no runs"])
    return 0


def _follow(look: Callable[[], "RunReport"], *, as_json: bool, plain: bool) -> None:
    """Show the run until it has ended: in a live view, or a report whenever there is news."""
    from hogbatch.views.live.choose import live_terminal

    if not plain and (terminal := live_terminal()):
        from hogbatch.views.live.console import follow

        follow(look, terminal)
        return
    shown: object = None
    while True:
        report = look()
        run = report.run
        news = (run.started, len(run.history), list(run.notices)[-1:], report.condition)
        if news != shown:
            lines = _lines(report, as_json=as_json, indent=None)
            _print(["", *lines] if shown is not None and not as_json else lines)
            shown = news
        if report.condition.over:
            return
        time.sleep(POLL_S)


def _lines(report: "RunReport", *, as_json: bool, indent: int | None) -> list[str]:
    from hogbatch.views.status.text import report_fields, report_lines

    if as_json:
        return [json.dumps(report_fields(report), indent=indent)]
    return report_lines(report, _width())


def _width() -> int:
    return max(MIN_WIDTH, shutil.get_terminal_size().columns)


def _print(lines: Sequence[str]) -> None:
    print(encodable("\n".join(lines), sys.stdout), flush=True)
