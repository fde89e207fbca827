"""`hogbatch train`, `coordinator` and `worker`: the processes of a training run."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from hogbatch.cli.parser import Parser, add_config
from hogbatch.config.arguments import add_flags
from hogbatch.config.effect import SEVERAL_SERVERS
from hogbatch.config.flags import Group
from hogbatch.config.train import FLAGS
from hogbatch.errors import SaveError, UsageError
from hogbatch.machine.process import worker_environment

if TYPE_CHECKING:
    from hogbatch.config.train import TrainConfig
    from hogbatch.run.results import Run

# Flags that the coordinator command does not have.
ONLY_IF_LAUNCHED: Final = ("workers", "pin", "refit", "members", "cluster", *SEVERAL_SERVERS)

WORKER_HELP: Final = """\
usage: hogbatch worker cpu|gpu RUN_DIR [options]

Attach a worker process to a running coordinator.

  cpu   a worker with threads on CPU cores
  gpu   a worker on one GPU

'hogbatch worker cpu --help' and 'hogbatch worker gpu --help' list the options."""


def train(arguments: Sequence[str]) -> int:
    """Train a model with all CPU cores and GPUs of this server."""
    return _train(Parser(train, "[DATA] [options]"), arguments, launch=True)


def coordinator(arguments: Sequence[str]) -> int:
    """Coordinate a training run to which workers are attached by hand."""
    return _train(Parser(coordinator, "[DATA] [options]"), arguments, launch=False)


def _train(parser: Parser, arguments: Sequence[str], *, launch: bool) -> int:
    add_config(parser)
    groups = add_flags(parser, [name for name in FLAGS if launch or name not in ONLY_IF_LAUNCHED])
    groups[Group.OUTPUT].add_argument(
        "--save",
        choices=["-"],
        metavar="-",
        help="write the model to standard output, too, for a server whose disks may be full; "
        "nothing else is printed there",
    )
    options = vars(parser.read(arguments))
    to_stdout = options.pop("save") is not None
    if to_stdout and sys.stdout.isatty():
        raise UsageError("--save - writes binary data: redirect standard output to a file or pipe")
    if not launch:  # also if it resumes a run of several servers, or of several models
        options |= {"cluster": "none", "refit": False, "members": 1}
    from hogbatch.run.resume import merge_settings  # here and below: help does not need these

    config = merge_settings(options, options.pop("config"))
    from hogbatch.run.refit import execute_with_refit

    config = replace(config, quiet=config.quiet or to_stdout)
    try:
        run = execute_with_refit(config, partial(_execute, launch=launch))
    except SaveError as error:
        if to_stdout and _write_to_stdout(error.run):
            raise SaveError(f"{error}; it was written to standard output") from None
        raise
    if to_stdout:
        _write_to_stdout(run)
    return run.exit_code


def _execute(config: "TrainConfig", *, launch: bool) -> "Run":
    from hogbatch.cluster.choose import choose_platform, reader
    from hogbatch.run.training import execute
    from hogbatch.views.live.choose import console_for

    platform = choose_platform(config, launch=launch)
    with console_for(quiet=config.quiet, plain=config.plain) as console:
        return execute(config, platform, reader(config, platform), console)


def _write_to_stdout(run: "Run | None") -> bool:
    """Write the model of `run` to standard output; return False if it has none. SaveError."""
    from hogbatch.model.file import write_model

    if run is None or run.trained is None:
        return False
    write_model(run.trained, sys.stdout.buffer)
    return True


def worker(arguments: Sequence[str]) -> int:
    """Attach a worker process to a running coordinator."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(WORKER_HELP)
        return 0
    if not arguments or arguments[0] not in ("cpu", "gpu"):
        got = repr(arguments[0]) if arguments else "nothing"
        raise UsageError(
            f"hogbatch worker expects cpu or gpu, then RUN_DIR; got {got}; see hogbatch worker "
            "--help"
        )
    device, *rest = arguments
    program = [sys.executable, "-P", "-m", f"hogbatch.workers.{device}", *rest]
    # The worker takes the place of this process.
    os.execve(sys.executable, program, worker_environment())
