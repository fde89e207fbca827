"""The command line of both workers, and the start and end of a worker process."""

import argparse
import signal
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NoReturn

from hogbatch.machine.limits import check_limits
from hogbatch.machine.process import collect_rarely, die_with, exit_after
from hogbatch.store.attach import attach_segments
from hogbatch.wire.address import find
from hogbatch.wire.sockets import Dealer
from hogbatch.workers.session import Engine, Session


def attach(run_dir: Path, engine: Engine, launched: bool) -> None:
    """Work for the coordinator of `run_dir` until it has no more work, or has ended."""
    check_limits()
    address = find(run_dir)
    received = attach_segments(address.store)
    with closing(Dealer(address.control)) as end:
        session = Session(end, received, engine)
        signal.signal(signal.SIGTERM, lambda *_: session.leave())
        # Ctrl-C in the terminal of the coordinator is handled by the coordinator.
        signal.signal(signal.SIGINT, signal.SIG_IGN if launched else lambda *_: session.leave())
        session.run()


def run(run_dir: Path, engine: Engine, launcher: int | None) -> NoReturn:
    """Call `attach`, then exit.

    This process is killed when the process `launcher` ends; None if a user has started it.
    """
    collect_rarely()
    if launcher is not None:
        die_with(launcher)
    exit_after("worker", partial(attach, run_dir, engine, launcher is not None))


def parser(device: str, about: str) -> argparse.ArgumentParser:
    """Return a parser with the arguments of every worker."""
    flags = argparse.ArgumentParser(
        prog=f"hogbatch worker {device}",
        usage=f"hogbatch worker {device} RUN_DIR [options]",
        description=about,
    )
    flags.add_argument(
        "run_dir", type=Path, metavar="RUN_DIR", help="run directory of the coordinator"
    )
    flags.add_argument("--launched", type=int, metavar="PID", help=argparse.SUPPRESS)
    return flags
