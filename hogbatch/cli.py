"""The command line: `hogbatch train`, `coordinator`, `worker`, `evaluate`, `predict`, ..."""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from hogbatch.config.arguments import add_flags
from hogbatch.config.flags import Group
from hogbatch.config.sources import REPLACED, merge_sources
from hogbatch.config.train import FLAGS
from hogbatch.errors import INTERRUPTED, HogbatchError, UsageError
from hogbatch.machine.printable import printable, printable_lines, rounded
from hogbatch.version import version

LESS_MEMORY: Final = "use fewer rows, a smaller network, or a machine with more memory"
# Flags of processes, sockets, checkpoints and records: a rehearsal has none of these.
NOT_REHEARSED: Final = (
    *("pin", "listen", "insecure", "checkpoint_seconds", "resume", "deterministic", "record"),
)
ONLY_IF_LAUNCHED: Final = ("workers", "pin")  # flags that the coordinator command does not have

if TYPE_CHECKING:
    from hogbatch.model.prediction import DataFile


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UsageError, so that all errors have one form.

    Flags must not be abbreviated. The error for an unknown flag names the closest existing one.
    """

    def __init__(self, command: str) -> None:
        super().__init__(
            prog=f"hogbatch {command}",
            usage=f"hogbatch {command} {COMMANDS[command].arguments}",
            description=COMMANDS[command].summary,
            allow_abbrev=False,
        )

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse all of `arguments`."""
        given, unknown = self.parse_known_args(arguments)
        if not unknown:
            return given
        flags = [text for text in self._option_string_actions if text.startswith("--")]
        got = unknown[0].split("=")[0]
        replaced = REPLACED.get(got.removeprefix("--").removeprefix("no-"))
        nearest = [f"--{replaced}"] if replaced else get_close_matches(got, flags, n=1)
        hint = f"; the nearest flag is {nearest[0]}" if nearest else ""
        self.error(f"unknown argument {unknown[0]!r}{hint}")

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def train(arguments: Sequence[str]) -> int:
    """`hogbatch train`."""
    return _run("train", arguments)


def coordinate(arguments: Sequence[str]) -> int:
    """`hogbatch coordinator`."""
    return _run("coordinator", arguments)


def _run(command: str, arguments: Sequence[str]) -> int:
    launch = command == "train"
    parser = Parser(command)
    _add_config(parser)
    add_flags(parser, [name for name in FLAGS if launch or name not in ONLY_IF_LAUNCHED])
    given = vars(parser.read(arguments))
    config = merge_sources(given, given.pop("config") or _settings_of_resumed_run(given))
    sys.path.append("")  # --policy module:Class may name a module in the working directory
    from hogbatch.run.this_server import ThisServer  # here: help and flag errors do not need it
    from hogbatch.run.training import execute

    return execute(config, ThisServer(launch)).exit_code


def _add_config(parser: Parser) -> None:
    parser.add_argument(
        "--config",
        type=Path,
        metavar="TOML",
        help="file with flags as keys; flags on the command line take precedence",
    )


def _settings_of_resumed_run(given: Mapping[str, object]) -> Path | None:
    """The settings of the run to resume, which apply where no flag is given; None without one."""
    if given.get("resume") is None:
        return None
    from hogbatch.run.resume import settings_file

    return settings_file(given)


def worker(arguments: Sequence[str]) -> int:
    """`hogbatch worker`: replace this process by `python -m workers.cpu` or `workers.gpu`."""
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
    os.execv(sys.executable, [sys.executable, "-P", "-m", f"workers.{device}", *rest])


def evaluate(arguments: Sequence[str]) -> int:
    """`hogbatch evaluate`."""
    given = _read_model_flags(_model_parser("evaluate"), arguments)
    from hogbatch.model.prediction import evaluate_file, write_lines

    data, hashing = _data_file(given), {"approximate": given.approximate, "lsh": given.lsh}
    results = evaluate_file(given.model, data, **hashing)
    write_lines((f"{name} {rounded(value)}" for name, value in results.items()), None)
    return 0


def predict(arguments: Sequence[str]) -> int:
    """`hogbatch predict`."""
    parser = _model_parser("predict")
    output = parser.add_argument_group(Group.OUTPUT.value)
    form = output.add_mutually_exclusive_group()
    form.add_argument("--proba", action="store_true", help="probabilities instead of labels")
    form.add_argument(
        "--top",
        type=int,
        metavar="K",
        help="the K most likely labels of each row; as XMC text for a multi-label model",
    )
    output.add_argument("--output", metavar="FILE", help="output file (default: standard output)")
    given = _read_model_flags(parser, arguments)
    from hogbatch.model.prediction import predict_file, write_lines

    data, hashing = _data_file(given), {"approximate": given.approximate, "lsh": given.lsh}
    lines = predict_file(given.model, data, proba=given.proba, top=given.top, **hashing)
    write_lines(lines, given.output)
    return 0


def _model_parser(command: str) -> Parser:
    """A parser with the arguments that `evaluate` and `predict` share."""
    parser = Parser(command)
    parser.add_argument(
        "model", metavar="MODEL", help="model file (model.safetensors in the run directory)"
    )
    parser.add_argument(
        "data",
        metavar="DATA",
        help="data: file, - for standard input, or name of the bundled sample",
    )
    groups = add_flags(parser, ["header", "data_cache"])
    parser.set_defaults(header="auto", data_cache="auto")
    groups[Group.DATA].add_argument(
        "--label", metavar="NAME", help="label column of a CSV file (default: as in training)"
    )
    hashing = parser.add_argument_group("hashed output layer")
    hashing.add_argument(
        "--approximate",
        action="store_true",
        help="scores of the outputs found in hash tables only, as in training, instead of all",
    )
    hashing.add_argument(
        "--lsh",
        metavar="FAMILY:KEY=VALUE,...",
        help="hashing settings of --approximate (default: as in training)",
    )
    return parser


def _data_file(given: argparse.Namespace) -> "DataFile":
    """The data file of `evaluate` or `predict`. Notes go to stderr, results to stdout."""
    from hogbatch.data.cache import DataCache
    from hogbatch.model.prediction import DataFile

    def print_note(line: str) -> None:
        print(f"hogbatch: note: {line}", file=sys.stderr)

    cache = DataCache.of(given.data_cache)
    return DataFile(given.data, given.label, given.header, cache, print_note)


def _read_model_flags(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    given = parser.read(arguments)
    if given.lsh is not None and not given.approximate:
        parser.error("--lsh requires --approximate; add --approximate, or omit --lsh")
    return given


def simulate(arguments: Sequence[str]) -> int:
    """`hogbatch simulate`."""
    parser = Parser("simulate")
    simulated = parser.add_argument_group("simulated run")
    simulated.add_argument(
        "--workers",
        metavar="LIST",
        default="cpu:4x2000rows/s",
        help="speeds of the workers: cpu:16x2000rows/s for 16 workers of 2000 rows/s each; with "
        "@half=256, batches of 256 rows run at half of that speed (default: %(default)s)",
    )
    simulated.add_argument(
        "--rows", default="1000000", metavar="N", help="rows per epoch (default: %(default)s)"
    )
    simulated.add_argument(
        "--seed", default="0", metavar="N", help="random seed (default: %(default)s)"
    )
    flags = ("policy", "alpha", "beta", "cpu_batch", "gpu_batch", "lease_ms", "epochs")
    add_flags(parser, [*flags, "max_seconds"])
    faults = parser.add_argument_group("fault injection")
    faults.add_argument(
        "--faults",
        action="store_true",
        help="instead, a random run with faults, drawn from --seed; fails if a guarantee is "
        "violated",
    )
    faults.add_argument(
        "--seeds",
        metavar="FIRST:STOP[:STEP]",
        help="a range of seeds for --faults, one run each; stops at the first failure",
    )
    output = parser.add_argument_group(Group.OUTPUT.value)
    output.add_argument("--json", action="store_true", help="all results as JSON")
    given = vars(parser.read(arguments))
    own = {name: given.pop(name) for name in ("workers", "rows", "seed", "json", "faults", "seeds")}
    from hogbatch.simulate.command import execute

    return execute(merge_sources({"data": "simulated", **given}), **own)


def rehearse(arguments: Sequence[str]) -> int:
    """`hogbatch rehearse`."""
    from hogbatch.servers.description import bundled_names

    parser = Parser("rehearse")
    rehearsed = parser.add_argument_group("simulated server")
    rehearsed.add_argument(
        "--server",
        metavar="NAME|TOML",
        required=True,
        help=f"server to simulate: {', '.join(bundled_names())}, or a TOML file as "
        "written by 'hogbatch profile'",
    )
    rehearsed.add_argument(
        "--interleave",
        choices=("layer", "batch"),
        default="layer",
        help="whether a CPU thread reads and writes each layer when it computes it, or reads the "
        "model when its batch begins and writes it when it ends (default: %(default)s)",
    )
    _add_config(parser)
    groups = add_flags(parser, [name for name in FLAGS if name not in NOT_REHEARSED])
    groups[Group.OUTPUT].add_argument(
        "--json", action="store_true", help="the summary as JSON; progress on standard error"
    )
    given = vars(parser.read(arguments))
    own = {name: given.pop(name) for name in ("server", "interleave", "json")}
    config = merge_sources(given, given.pop("config"))
    sys.path.append("")  # --policy module:Class may name a module in the working directory
    from hogbatch.rehearse.command import execute

    return execute(config, **own)


def replay(arguments: Sequence[str]) -> int:
    """`hogbatch replay`."""
    parser = Parser("replay")
    parser.add_argument("run_dir", metavar="RUN_DIR", help="run directory of a run with --record")
    parser.add_argument(
        "--until",
        metavar="UPDATES|SECONDS",
        help="end of the replay: a number of updates, or training seconds, as in 2.5s (default: "
        "the end of the record)",
    )
    output = parser.add_argument_group(Group.OUTPUT.value)
    output.add_argument(
        "--output", metavar="MODEL", help="file for the model at the end of the replay"
    )
    output.add_argument("--json", action="store_true", help="all results as JSON")
    given = vars(parser.read(arguments))
    from hogbatch.replay.command import execute

    return execute(given.pop("run_dir"), **given)


def profile(arguments: Sequence[str]) -> int:
    """`hogbatch profile`."""
    parser = Parser("profile")
    parser.add_argument(
        "--output", metavar="FILE", help="TOML file to write (default: standard output)"
    )
    parser.add_argument(
        "--name",
        metavar="NAME",
        default="this-machine",
        help="name of the server (default: %(default)s)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="few measurements, to test the command: the figures are inexact",
    )
    given = parser.read(arguments)
    for library in ("OPENBLAS", "OMP", "MKL"):  # as in workers; effective before NumPy is imported
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    from hogbatch.servers.profile.command import execute

    return execute(given.output, given.name, quick=given.quick)


class Command(NamedTuple):
    """One command of the program."""

    run: Callable[[Sequence[str]], int]  # takes the arguments after its name; returns an exit code
    arguments: str  # as shown in the usage line
    summary: str


COMMANDS: Final = {
    "train": Command(
        train,
        "[DATA] [options]",
        "Train a model with all CPU cores and GPUs of this server.",
    ),
    "coordinator": Command(
        coordinate,
        "[DATA] [options]",
        "Coordinate a training run to which workers are attached by hand.",
    ),
    "worker": Command(
        worker,
        "cpu|gpu RUN_DIR [options]",
        "Attach a worker process to a running coordinator.",
    ),
    "evaluate": Command(
        evaluate,
        "MODEL DATA [options]",
        "Print the loss and metrics of a model on labelled data.",
    ),
    "predict": Command(
        predict,
        "MODEL DATA [options]",
        "Print the predictions of a model, one line per row.",
    ),
    "simulate": Command(
        simulate,
        "[options]",
        "Simulate a run with workers of given speeds, without the hardware.",
    ),
    "rehearse": Command(
        rehearse,
        "[DATA] --server NAME|TOML [options]",
        "Train on a simulated server: real gradients, simulated times.",
    ),
    "replay": Command(
        replay,
        "RUN_DIR [options]",
        "Repeat the updates of a recorded run on one core, without the races inside an update.",
    ),
    "profile": Command(
        profile,
        "[options]",
        "Measure this machine and write its description, for rehearsals.",
    ),
}

WORKER_HELP: Final = f"""\
usage: hogbatch worker {COMMANDS["worker"].arguments}

{COMMANDS["worker"].summary}

  cpu   a worker with threads on CPU cores
  gpu   a worker on one GPU

'hogbatch worker cpu --help' and 'hogbatch worker gpu --help' list the options."""


def _overview() -> str:
    lines = [f"  {name:12} {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: hogbatch COMMAND [options]",
            "",
            "Train one model with all CPU cores and GPUs of a server at the same time.",
            "",
            "commands:",
            *lines,
            "",
            "options:",
            "  -h, --help   show this help message and exit",
            "  --version    show the version and exit",
            "",
            "'hogbatch COMMAND --help' lists the options of a command.",
        ]
    )


def _dispatch(arguments: Sequence[str]) -> int:
    match arguments:
        case [] | ["--help" | "-h", *_]:
            print(_overview())
            return 0
        case ["--version", *_]:
            print(f"hogbatch {version()}")
            return 0
        case [command, *rest] if command in COMMANDS:
            return COMMANDS[command].run(rest)
    known = ", ".join(COMMANDS)
    raise UsageError(f"unknown command {arguments[0]!r}; expected one of {known}")


def _interrupt_once(*_: object) -> NoReturn:
    """Handle the first Ctrl-C and ignore later ones, which would print a traceback at exit."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. An error is printed as one sentence on stderr."""
    if arguments is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt_once)
    try:
        return _dispatch(list(sys.argv[1:] if arguments is None else arguments))
    except HogbatchError as error:
        print(f"hogbatch: {printable_lines(str(error))}", file=sys.stderr)
        return error.exit_code
    except MemoryError as error:
        reason = printable(str(error)) or "an allocation failed"
        print(f"hogbatch: not enough memory ({reason}); {LESS_MEMORY}", file=sys.stderr)
        return UsageError.exit_code
    except KeyboardInterrupt:
        with suppress(OSError):  # the terminal may be closed
            print("hogbatch: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the output has closed it, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        from hogbatch.machine.limits import explain_limit

        if not (sentence := explain_limit(error)):
            raise
        print(f"hogbatch: {sentence}", file=sys.stderr)
        return UsageError.exit_code


if __name__ == "__main__":
    sys.exit(main())
