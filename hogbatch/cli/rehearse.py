"""`hogbatch rehearse`: train on a simulated server."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from hogbatch.cli.parser import Parser, add_config
from hogbatch.config.arguments import add_flags
from hogbatch.config.effect import SEVERAL_SERVERS, changed, expect_effect, without_policy
from hogbatch.config.flags import Group
from hogbatch.config.sources import merge_sources
from hogbatch.config.train import FLAGS
from hogbatch.errors import UsageError

# Settings that a rehearsal does not support; a configuration file may not have them either.
REFUSED: Final = ("resume", "deterministic", "init", "refit", "members", "servers", "cluster")
# Flags of processes, sockets, saved models, live views and clusters: a rehearsal has none.
NOT_REHEARSED: Final = ("pin", "checkpoint_seconds", "plain", *REFUSED, *SEVERAL_SERVERS)
PROGRESS_S: Final = 10.0  # of real time between two progress lines


def rehearse(arguments: Sequence[str]) -> int:
    """Train on a simulated server: real gradients, simulated times."""
    options = vars(_parser().read(arguments))
    server, as_json = options.pop("server"), options.pop("json")
    config = merge_sources(options, options.pop("config"))
    for name in changed(config, REFUSED):
        raise UsageError(f"{name}: a rehearsal does not support this setting; remove it")
    expect_effect(without_policy(config))
    from hogbatch.run.training import execute
    from hogbatch.simulate.hardware.description import read_server
    from hogbatch.simulate.rehearsal.rehearsal import Rehearsal

    progress = ProgressLines(quiet=config.quiet)
    settings = replace(config, checkpoint_seconds=0.0, quiet=config.quiet or as_json)
    run = execute(settings, Rehearsal(read_server(server), progress.observe))
    if as_json:
        seconds = progress.seconds
        cost = {"real_seconds": seconds, "rows_per_real_second": run.summary["rows"] / seconds}
        print(json.dumps({**run.summary, **cost, "run_dir": str(run.run_dir)}))
    return run.exit_code


def _parser() -> Parser:
    from hogbatch.simulate.hardware.description import bundled_names

    parser = Parser(rehearse, "[DATA] --server NAME|TOML [options]")
    rehearsed = parser.add_argument_group("simulated server")
    rehearsed.add_argument(
        "--server",
        metavar="NAME|TOML",
        required=True,
        help=f"server to simulate: {', '.join(bundled_names())}, or a TOML file as "
        "written by 'hogbatch profile'",
    )
    add_config(parser)
    groups = add_flags(parser, [name for name in FLAGS if name not in NOT_REHEARSED])
    groups[Group.OUTPUT].add_argument(
        "--json", action="store_true", help="the summary as JSON; progress on standard error"
    )
    return parser


class ProgressLines:
    """Prints to stderr how far a rehearsal is, every PROGRESS_S seconds of real time."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._began = time.monotonic()
        self._next = self._began + PROGRESS_S
        self._rows = 0

    def observe(self, seconds: float, rows: int) -> None:
        """Print a line if it is time: the simulated seconds, and the rows trained on."""
        now = time.monotonic()
        if self._quiet or now < self._next:
            return
        speed = (rows - self._rows) / (now - self._next + PROGRESS_S)
        self._next, self._rows = now + PROGRESS_S, rows
        print(
            f"rehearsing for {now - self._began:.0f} s: {seconds:.3f} s simulated, "
            f"{rows:,} rows, {speed:,.0f} rows/s of real time",
            file=sys.stderr,
            flush=True,
        )

    @property
    def seconds(self) -> float:
        """Real seconds since the start."""
        return time.monotonic() - self._began
