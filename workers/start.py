"""The command line of both workers, and how a worker process begins and ends."""

import argparse
import ctypes
import logging
import os
import signal
import sys
import traceback
from pathlib import Path

from hogbatch.errors import HogbatchError, UsageError
from hogbatch.machine.limits import beyond_limits, check_limits
from hogbatch.machine.printable import printable_lines
from hogbatch.store.segment_server import fetch_segments
from hogbatch.wire.address import find
from hogbatch.wire.sockets import Dealer
from workers.session import Engine, Session, leave_on_signals

ATTACH_WITHIN_S = 10.0
PR_SET_PDEATHSIG = 1  # linux/prctl.h


def attach(run_dir: Path, engine: Engine, launched: bool) -> None:
    """Work for the coordinator of `run_dir` until it has no more work, or is gone."""
    check_limits()
    address = find(run_dir)
    received = fetch_segments(address.store, ATTACH_WITHIN_S)
    end = Dealer(address.control, address.keys)
    session = Session(end, received, engine)
    if launched:  # Ctrl-C in the coordinator's terminal is the coordinator's business
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        leave_on_signals(session, (signal.SIGTERM,))
    else:
        leave_on_signals(session, (signal.SIGTERM, signal.SIGINT))
    try:
        session.run()
    finally:
        end.close()


def finish(error: BaseException | None) -> int:
    """Print what there is to say; return the exit code."""
    if error is None:
        return 0
    if isinstance(error, OSError) and (sentence := beyond_limits(error)):
        error = UsageError(sentence)
    if isinstance(error, HogbatchError):
        print(f"hogbatch worker: {printable_lines(str(error))}", file=sys.stderr)
        return error.exit_code
    traceback.print_exception(error)
    return 1


def die_with(parent: int) -> None:
    """Have the kernel kill this process, whatever it is doing, when the thread ends that started
    it; `parent` is that thread's process. prctl(2), PR_SET_PDEATHSIG.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel knew of this
        os._exit(UsageError.exit_code)


def run(run_dir: Path, engine: Engine, launcher: int | None) -> None:
    """`attach`, then end the process at once: threads inside kernels need not be waited for.

    `launcher` is the process that has started this one, and is not to be outlived; None: a user.
    """
    if launcher is not None:
        die_with(launcher)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    try:
        attach(run_dir, engine, launcher is not None)
        code = 0
    except BaseException as error:
        code = finish(error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def parser(device: str, about: str) -> argparse.ArgumentParser:
    """Flags that every worker has."""
    made = argparse.ArgumentParser(prog=f"hogbatch worker {device}", description=about)
    made.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="where the coordinator lives")
    made.add_argument("--launched", type=int, metavar="PID", help=argparse.SUPPRESS)
    return made
