"""`hogbatch rehearse`: train on a simulated server."""

import json as json_format
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hogbatch.cluster.decisions.link import ServerLink
from hogbatch.cluster.decisions.settings import RehearsedServers
from hogbatch.config.train import TrainConfig
from hogbatch.errors import UsageError
from hogbatch.jit import COMPILING, before_compiling
from hogbatch.run.training import execute as run_on
from hogbatch.simulate.hardware.description import read_server
from hogbatch.simulate.rehearsal.concurrent_model import Interleave
from hogbatch.simulate.rehearsal.rehearsal import Reached, Rehearsal
from hogbatch.simulate.rehearsal.several_servers import RehearsalOfServers

REFUSED = ("resume", "deterministic")
PROGRESS_S = 10.0  # of real time between two progress lines


class ProgressLines:
    """Prints to stderr how far a rehearsal is, every PROGRESS_S seconds of real time."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._began = time.monotonic()
        self._next = self._began + PROGRESS_S
        self._last = Reached(0.0, 0)

    def observe(self, progress: Callable[[], Reached]) -> None:
        """Print a line if it is time; only then is `progress` called."""
        now = time.monotonic()
        if self._quiet or now < self._next:
            return
        reached = progress()
        speed = (reached.rows - self._last.rows) / (now - self._next + PROGRESS_S)
        self._next, self._last = now + PROGRESS_S, reached
        self._print(
            f"rehearsing for {now - self._began:.0f} s: {reached.seconds:.3f} s simulated, "
            f"{reached.rows:,} rows, {speed:,.0f} rows/s of real time"
        )

    def compiling(self) -> None:
        """Print that kernels are being compiled, during which there are no other lines."""
        self._print(COMPILING)

    @property
    def seconds(self) -> float:
        """Real seconds since the start."""
        return time.monotonic() - self._began

    def _print(self, line: str) -> None:
        if not self._quiet:
            print(line, file=sys.stderr, flush=True)


def execute(
    config: TrainConfig,
    *,
    server: str,
    interleave: Interleave,
    json: bool,
    link: ServerLink,
) -> int:
    """Rehearse the run on `server`, a bundled name or a file; return the exit code.

    With several servers, all are of this kind and connected by `link`. With `json`, print the
    summary as JSON to stdout, and progress lines only to stderr. UsageError if `server` does not
    exist or is not valid.
    """
    _expect_rehearsable(config)
    described = read_server(server)
    progress = ProgressLines(quiet=config.quiet)
    settings = replace(config, checkpoint_seconds=0.0, quiet=config.quiet or json)
    with before_compiling(progress.compiling):
        servers = several_servers(config, link)
        if servers is None:
            run, several = run_on(settings, Rehearsal(described, interleave, progress.observe)), {}
        else:
            platform = RehearsalOfServers(described, interleave, progress.observe, servers)
            run = run_on(settings, platform, platform.read)
            merges = platform.merges
            several = {"all_rows": merges.rows, "merges": merges.merges} if merges else {}
    if json:
        seconds = progress.seconds
        rows = several.get("all_rows", run.summary["rows"])
        cost = several | {"real_seconds": seconds, "rows_per_real_second": rows / seconds}
        print(json_format.dumps({**run.summary, **cost, "run_dir": str(run.run_dir)}))
    return run.exit_code


def several_servers(config: TrainConfig, link: ServerLink) -> RehearsedServers | None:
    """How several servers train together; None for one server."""
    if config.servers == 1:
        return None
    merge: Any = config.server_merge  # one of its choices
    return RehearsedServers(config.servers, link, config.merge_rows, merge, config.server_momentum)


def _expect_rehearsable(config: TrainConfig) -> None:
    """UsageError for settings of a configuration file that a rehearsal cannot follow."""
    usual = TrainConfig()
    for name in REFUSED:
        if getattr(config, name) != getattr(usual, name):
            raise UsageError(f"{name}: a rehearsal does not support this setting; remove it")
