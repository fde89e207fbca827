"""The command line: `hogbatch train | coordinator | worker | evaluate | predict | simulate`."""

import argparse
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from hogbatch.config.train import FLAGS, REPLACED, add_flags, merge_sources
from hogbatch.errors import INTERRUPTED, HogbatchError, UsageError
from hogbatch.machine.printable import printable, printable_lines, rounded

LESS_MEMORY: Final = "use fewer rows, a smaller network, or a machine with more memory"

if TYPE_CHECKING:
    from hogbatch.model.prediction import DataFile


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are UsageErrors, so that every error has one form.

    A flag must be written out, and one that does not exist is answered with the nearest.
    """

    def __init__(self, command: str) -> None:
        super().__init__(
            prog=f"hogbatch {command}", description=COMMANDS[command][1], allow_abbrev=False
        )

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse all of `arguments`."""
        given, unknown = self.parse_known_args(arguments)
        if not unknown:
            return given
        flags = re.findall(r"--[a-z0-9-]+", self.format_usage())
        got = unknown[0].split("=")[0]
        replaced = REPLACED.get(got.removeprefix("--").removeprefix("no-"))
        nearest = [f"--{replaced}"] if replaced else get_close_matches(got, flags, n=1)
        hint = f"; the nearest flag is {nearest[0]}" if nearest else ""
        self.error(f"unknown argument {unknown[0]!r}{hint}")

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def train(arguments: Sequence[str], launch: bool) -> int:
    """`hogbatch train` and `hogbatch coordinator`."""
    what = "train" if launch else "coordinator"
    parser = Parser(what)
    parser.add_argument("--config", type=Path, metavar="TOML", help="flags from a file")
    add_flags(parser, [name for name in FLAGS if launch or name not in ("workers", "pin")])
    given = vars(parser.read(arguments))
    config = merge_sources(given, given.pop("config") or _settings_before(given))
    sys.path.append("")  # the module of --policy module:Class may lie in the working directory
    from hogbatch.run.training import execute  # here: --help and errors in flags need none of it

    return execute(config, launch=launch).exit_code


def _settings_before(given: Mapping[str, object]) -> Path | None:
    """The flags of the run that is resumed, which hold where none are given."""
    if given.get("resume") is None:
        return None
    from hogbatch.run.resume import settings_of

    return settings_of(given)


def worker(arguments: Sequence[str]) -> int:
    """`hogbatch worker`: become `python -m workers.cpu` or `workers.gpu`."""
    if arguments and arguments[0] in ("-h", "--help"):
        print("usage: hogbatch worker cpu|gpu RUN_DIR ...   (cpu --help, gpu --help: their flags)")
        return 0
    if not arguments or arguments[0] not in ("cpu", "gpu"):
        got = repr(arguments[0]) if arguments else "nothing"
        raise UsageError(f"hogbatch worker expects cpu or gpu, then RUN_DIR; got {got}")
    kind, *rest = arguments
    os.execv(sys.executable, [sys.executable, "-P", "-m", f"workers.{kind}", *rest])


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
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--proba", action="store_true", help="probabilities instead of labels")
    about_top = "the K likeliest labels of each row; of a multi-label model as XMC text"
    form.add_argument("--top", type=int, metavar="K", help=about_top)
    parser.add_argument("--output", metavar="FILE", help="write there instead of to stdout")
    given = _read_model_flags(parser, arguments)
    from hogbatch.model.prediction import predict_file, write_lines

    data, hashing = _data_file(given), {"approximate": given.approximate, "lsh": given.lsh}
    lines = predict_file(given.model, data, proba=given.proba, top=given.top, **hashing)
    write_lines(lines, given.output)
    return 0


def _model_parser(command: str) -> Parser:
    parser = Parser(command)
    parser.add_argument("model", metavar="MODEL", help="model.safetensors of a run")
    about_data = "a file, - for standard input, or the name of the bundled sample"
    parser.add_argument("data", metavar="DATA", help=about_data)
    parser.add_argument(
        "--label", metavar="NAME", help="label column of a CSV file (default: as in training)"
    )
    about_tables = "score what hash tables find, as in training, instead of all outputs"
    parser.add_argument("--approximate", action="store_true", help=about_tables)
    about_lsh = "other settings of hashing than those of training, for --approximate"
    parser.add_argument("--lsh", metavar="FAMILY:KEY=VALUE,...", help=about_lsh)
    add_flags(parser, ["header", "data_cache"])
    parser.set_defaults(header="auto", data_cache="auto")
    return parser


def _data_file(given: argparse.Namespace) -> "DataFile":
    """The data file of `evaluate` or `predict`; notes go to stderr, for results go to stdout."""
    from hogbatch.data.cache import DataCache
    from hogbatch.model.prediction import DataFile

    def say(line: str) -> None:
        print(f"hogbatch: note: {line}", file=sys.stderr)

    return DataFile(given.data, given.label, given.header, DataCache.of(given.data_cache), say)


def _read_model_flags(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    given = parser.read(arguments)
    if given.lsh is not None and not given.approximate:
        parser.error("--lsh is for --approximate; add that, or leave --lsh out")
    return given


def simulate(arguments: Sequence[str]) -> int:
    """`hogbatch simulate`."""
    parser = Parser("simulate")
    about_workers = (
        "cpu:16x2000rows/s,...: 16 workers of 2000 rows/s each; @half=256: a batch of 256 rows has "
        "half of that speed (default for gpu)"
    )
    parser.add_argument("--workers", metavar="LIST", default="cpu:4x2000rows/s", help=about_workers)
    flags = ("policy", "alpha", "beta", "cpu_batch", "gpu_batch", "lease_ms", "epochs")
    add_flags(parser, [*flags, "max_seconds"])
    parser.add_argument("--rows", default="1000000", metavar="N", help="of an epoch (1000000)")
    parser.add_argument("--seed", default="0", metavar="N", help="of all chance (0)")
    parser.add_argument("--json", action="store_true", help="everything, as JSON")
    about_faults = "instead: a run full of faults, drawn from --seed, that must keep all promises"
    parser.add_argument("--faults", action="store_true", help=about_faults)
    about_seeds = "many such runs; stops at the first that fails"
    parser.add_argument("--seeds", metavar="FIRST:STOP[:STEP]", help=about_seeds)
    given = vars(parser.read(arguments))
    own = {name: given.pop(name) for name in ("workers", "rows", "seed", "json", "faults", "seeds")}
    from hogbatch.simulate.command import execute

    return execute(merge_sources({"data": "simulated", **given}), **own)


COMMANDS: Final[dict[str, tuple[Callable[[Sequence[str]], int], str]]] = {
    "train": (
        lambda arguments: train(arguments, launch=True),
        "Train a model with all processors of this server.",
    ),
    "coordinator": (
        lambda arguments: train(arguments, launch=False),
        "Coordinate a training run whose workers are attached by hand.",
    ),
    "worker": (worker, "Attach one worker to a running job: hogbatch worker cpu|gpu RUN_DIR."),
    "evaluate": (evaluate, "Loss and metrics of a model on a file with labels."),
    "simulate": (simulate, "What workers of given speeds would do under a policy, without them."),
    "predict": (predict, "Predictions of a model, one line per row of a file."),
}


def _overview() -> str:
    lines = [f"  {name:12} {about}" for name, (_, about) in COMMANDS.items()]
    return "\n".join(["usage: hogbatch COMMAND ...   (COMMAND --help for its flags)", "", *lines])


def _dispatch(arguments: Sequence[str]) -> int:
    match arguments:
        case [] | ["--help" | "-h", *_]:
            print(_overview())
            return 0
        case ["--version", *_]:
            print(f"hogbatch {version('hogbatch')}")
            return 0
        case [command, *rest] if command in COMMANDS:
            return COMMANDS[command][0](rest)
    known = ", ".join(COMMANDS)
    raise UsageError(f"unknown command {arguments[0]!r}; expected one of {known}")


def _interrupt_once(*_: object) -> NoReturn:
    """Handle Ctrl-C; once more, while the program ends, it would end in a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code. Errors are one sentence on stderr."""
    if arguments is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt_once)
    try:
        return _dispatch(list(sys.argv[1:] if arguments is None else arguments))
    except HogbatchError as error:
        print(f"hogbatch: {printable_lines(str(error))}", file=sys.stderr)
        return error.exit_code
    except MemoryError as error:
        why = printable(str(error)) or "an allocation failed"
        print(f"hogbatch: not enough memory ({why}); {LESS_MEMORY}", file=sys.stderr)
        return UsageError.exit_code
    except KeyboardInterrupt:
        with suppress(OSError):  # a terminal that is gone
            print("hogbatch: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        from hogbatch.machine.limits import beyond_limits

        if not (sentence := beyond_limits(error)):
            raise
        print(f"hogbatch: {sentence}", file=sys.stderr)
        return UsageError.exit_code


if __name__ == "__main__":
    sys.exit(main())
