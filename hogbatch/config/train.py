"""What a training run is asked to do: one field for each flag of `hogbatch train`.

The fields of :class:`TrainConfig` are the one table from which the flags, the keys of a TOML file
and the arguments of `hogbatch.train` are made. A value is given as text (a flag) or as itself
(TOML, Python); flag > file > default. Every complaint is a UsageError.
"""

import argparse
import difflib
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from hogbatch.config.values import (
    ABOVE_ONE,
    ANYTHING,
    DAMPING,
    FRACTION,
    INT64,
    LIMITS,
    NOT_NEGATIVE,
    NUMBER,
    POSITIVE,
    SWITCH,
    TEXT,
    UP_TO_ONE,
    WHOLE,
    WIDTHS,
    WORKERS,
    BatchLimits,
    Check,
    Damping,
    Kind,
    WorkerRequest,
    Workers,
)
from hogbatch.errors import UsageError
from hogbatch.model.losses import LOSSES
from hogbatch.model.optimizers import OPTIMIZERS

T = TypeVar("T")

SCALES: Final = ("auto", "none", "standard", "max")
REPLACED: Final = {"standardize": "scale"}  # keys that were, and what has taken their place


def _readable(settings: str) -> bool:
    from hogbatch.config.lsh import readable  # here: who evaluates a model need not have msgspec

    return readable(settings)


FEATURES: Final = Check("from 1 to 2^31 - 1", lambda value: 0 < value < 2**31)
LSH: Final = Check("settings of hashing", _readable)


@dataclass(frozen=True, slots=True)
class Flag:
    """What a field says of itself: how it is read, explained and checked."""

    kind: Kind
    help: str
    metavar: str
    check: Check
    choices: tuple[str, ...]


def _flag(default: T, kind: Kind, help: str, metavar: str = "", check: Check = ANYTHING) -> T:
    """A dataclass field that carries its Flag."""
    return field(default=default, metadata={"flag": Flag(kind, help, metavar, check, ())})


def _choice(default: str, help: str, *choices: str) -> str:
    """The field of a name out of `choices`, where "module:Class" stands for any such text."""

    def holds(name: str) -> bool:
        return name in choices or (
            "module:Class" in choices and re.fullmatch(r"[\w.]+:\w+", name) is not None
        )

    check = Check(f"one of {', '.join(choices)}", holds)
    described = Flag(TEXT, help, "|".join(choices), check, choices)
    return field(default=default, metadata={"flag": described})


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """A training run. :func:`merge_sources` gives one that is validated.

    None means: `test`, split a `test_fraction` off the data; `lr`, `l2`, `cpu_batch`, `epochs` and
    `patience`, see `run.defaults` and `run.planning`; `gpu_batch`, measured at the start;
    `merge_every` and `eval_seconds`, so that merging and evaluation take little; `run_dir`,
    runs/<timestamp>-<data name>.
    """

    data: str = _flag(
        "",
        TEXT,
        "training data: a file, - for standard input, or the name of the bundled sample",
        "DATA",
    )
    test: str | None = _flag(
        None, TEXT, "test data in a file of its own, or - for standard input", "DATA"
    )
    test_fraction: float = _flag(0.2, NUMBER, "fraction of DATA to test on", "FRACTION", FRACTION)
    label: str | None = _flag(None, TEXT, "label column of a CSV file (default: the last)", "NAME")
    index_base: str = _choice("auto", "first feature number of a libsvm file", "auto", "0", "1")
    header: str = _choice(
        "auto", "whether a CSV file begins with one; auto goes by its cells", "auto", "yes", "no"
    )
    features: int | None = _flag(
        None, WHOLE, "features of libsvm data (default: those that occur)", "N", FEATURES
    )
    data_cache: str = _flag("auto", TEXT, "where parsed text is kept: auto, off, a folder", "DIR")
    hidden: tuple[int, ...] = _flag(
        (512, 512), WIDTHS, "widths of hidden layers (empty: a linear model)", "H,H,...", POSITIVE
    )
    activation: str = _choice("relu", "of the hidden layers", "relu", "sigmoid", "tanh")
    output: str = _choice(
        "auto", "output layer; auto hashes one of many outputs", "auto", "dense", "lsh"
    )
    lsh: str = _flag("auto", TEXT, "how it is hashed (docs/slide.md)", "FAMILY:KEY=VALUE,...", LSH)
    loss: str = _choice(
        "auto",
        "what is minimised; auto goes by the labels",
        *("auto", *LOSSES),
    )
    optimizer: str = _choice("adagrad", "what is done with a gradient", *OPTIMIZERS)
    lr: float | None = _flag(
        None, NUMBER, "learning rate (default: by optimizer, loss and data)", "RATE", POSITIVE
    )
    lr_scaling: str = _choice(
        "auto", "growth of lr with the batch", "auto", "none", "linear", "sqrt"
    )
    lr_batch: int = _flag(16, WHOLE, "batch at which lr applies unscaled", "ROWS", POSITIVE)
    lr_cap: float = _flag(4.0, NUMBER, "most that scaling may multiply lr by", "X", POSITIVE)
    l2: float | None = _flag(
        None, NUMBER, "L2 penalty (default: by rows, 0 from 10,000 on)", "X", NOT_NEGATIVE
    )
    workers: Workers = _flag(  # noqa: RUF009 (here and below: it is dataclasses.field)
        "auto", WORKERS, "auto, or cpu:THREADS, gpu:N, gpu:host, ...", "LIST"
    )
    pin: bool = _flag(
        True, SWITCH, "keep each CPU thread on a core of its own, if there are enough"
    )
    policy: str = _choice(
        "adaptive", "what sizes the batches", "adaptive", "hogbatch", "fixed", "module:Class"
    )
    cpu_batch: BatchLimits | None = _flag(  # noqa: RUF009
        None,
        LIMITS,
        "rows of a batch on a CPU thread (default: 1:64, fewer for small data)",
        "MIN:MAX",
    )
    gpu_batch: BatchLimits | None = _flag(  # noqa: RUF009
        None, LIMITS, "rows of a batch on a GPU (default: measured at the start)", "MIN:MAX"
    )
    alpha: float = _flag(2.0, NUMBER, "by which adaptive resizes a batch", "FACTOR", ABOVE_ONE)
    beta: float = _flag(1.0, NUMBER, "what adaptive counts a CPU update for", "X", POSITIVE)
    merge: str = _choice(
        "delta", "how a GPU's change joins the model", "delta", "overwrite", "average"
    )
    merge_every: int | None = _flag(
        None,
        WHOLE,
        "GPU batches between two merges (default: so that merging takes a tenth of the time)",
        "BATCHES",
        POSITIVE,
    )
    staleness_damping: Damping = _flag(  # noqa: RUF009
        "root",
        DAMPING,
        "weaken a GPU's change by the updates since its pull: 1/sqrt(1 + N), e^(-BETA N)",
        "root|auto|BETA|off",
    )
    precision: str = _choice("float32", "of a GPU's matrix products", "float32", "tf32", "bfloat16")
    lease_ms: float = _flag(50.0, NUMBER, "how long a lease should take", "MS", POSITIVE)
    epochs: int | None = _flag(
        None,
        WHOLE,
        "passes over the data (default: 10, more for small data)",
        "N",
        POSITIVE,
    )
    patience: int | None = _flag(
        None,
        WHOLE,
        "epochs without a lower test loss after which training ends; 0: never (default: 0 with "
        "--epochs or --max-seconds, else 10 or more)",
        "N",
        NOT_NEGATIVE,
    )
    max_seconds: float | None = _flag(None, NUMBER, "training time to stop after", "S", POSITIVE)
    target_loss: float | None = _flag(None, NUMBER, "test loss to stop at", "X", POSITIVE)
    eval_seconds: float | None = _flag(
        None, NUMBER, "time between evaluations (default: so that they take little)", "S", POSITIVE
    )
    average: str = _choice(
        "auto", "evaluate and keep the mean of recent models; auto: with lsh", "auto", "on", "off"
    )
    keep: str = _choice("best", "model to save: of the best test results, or last", "best", "last")
    scale: str = _choice(
        "auto",
        "features: standard (mean 0, deviation 1), max (largest |value| 1); auto: if they need it",
        *SCALES,
    )
    seed: int = _flag(
        0,
        WHOLE,
        "of the split into training and test rows, of their order, of the first weights",
        "N",
        INT64,
    )
    deterministic: bool = _flag(
        False, SWITCH, "the same model to the bit: one CPU thread, evaluated by epoch"
    )
    checkpoint_seconds: float = _flag(
        60.0, NUMBER, "between two checkpoints (0: none)", "S", NOT_NEGATIVE
    )
    resume: str | None = _flag(
        None, TEXT, "go on from a run directory or checkpoint; auto: of --run-dir", "auto|PATH"
    )
    bad_lines: float = _flag(
        0.0, NUMBER, "fraction of a text file's lines that may be skipped", "FRACTION", UP_TO_ONE
    )
    listen: str | None = _flag(
        None,
        TEXT,
        "where workers connect, with keys of this run (default: a socket without a name)",
        "tcp://IP:PORT",
    )
    insecure: bool = _flag(False, SWITCH, "with --listen: no keys, whoever can connect is let in")
    run_dir: str | None = _flag(
        None, TEXT, "folder of the run (default: runs/<timestamp>-<data name>)", "DIR"
    )
    overwrite: bool = _flag(
        False, SWITCH, "replace the run in run-dir, once the new one has saved something"
    )
    wait_for_workers: float = _flag(
        60.0, NUMBER, "time without any worker before giving up", "S", POSITIVE
    )
    start_with: int = _flag(
        1, WHOLE, "workers that must be ready before training starts", "N", POSITIVE
    )
    quiet: bool = _flag(False, SWITCH, "no progress lines")

    def validated(self) -> "TrainConfig":
        """Check every value; UsageError for the first bad one. `deterministic` sets `workers`."""
        if not self.data:
            raise UsageError("DATA is missing; give a file, or the name of the bundled sample")
        for name, described in FLAGS.items():
            _check(name, described.check, getattr(self, name))
        if self.staleness_damping not in ("root", "off") and self.merge != "delta":
            raise UsageError(f"staleness-damping needs merge delta; got merge {self.merge}")
        if self.resume == "auto" and self.run_dir is None:
            raise UsageError("resume auto needs run-dir; or give resume a run directory")
        return self._determined() if self.deterministic else self

    def _determined(self) -> "TrainConfig":
        """What makes two runs the same to the bit."""
        if self.max_seconds is not None and self.epochs is None:
            raise UsageError("deterministic needs epochs: max-seconds ends a run by the clock")
        one_thread = (WorkerRequest("cpu", threads=1),)
        if self.workers not in ("auto", one_thread):
            raise UsageError(f"deterministic needs workers cpu:1; got {_shown(self.workers)}")
        return replace(self, workers=one_thread)


FLAGS: Final[dict[str, Flag]] = {f.name: f.metadata["flag"] for f in fields(TrainConfig)}


def _check(name: str, check: Check, value: Any) -> None:
    for item in value if isinstance(value, tuple) else (value,):
        if item is not None and not check.holds(item):
            raise UsageError(f"{_dashed(name)} must be {check.expected}; got {item!r}")


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _shown(value: object) -> str:
    """`value` as a flag takes it."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def add_flags(parser: argparse.ArgumentParser, names: Iterable[str] = tuple(FLAGS)) -> None:
    """Give `parser` the flags of the fields `names`; only those used appear in its namespace.

    Values stay text: :func:`merge_sources` reads them, so that all errors have one form.
    """
    for name in names:
        described = FLAGS[name]
        settings: dict[str, Any] = {"help": _help(name), "default": argparse.SUPPRESS}
        if described.kind is SWITCH:
            settings["action"] = argparse.BooleanOptionalAction
        else:
            settings["metavar"] = described.metavar
        short = ["-q"] if name == "quiet" else []
        if name == "data":
            parser.add_argument(name, nargs="?", **settings)
        else:
            parser.add_argument(*short, f"--{_dashed(name)}", **settings)


def _help(name: str) -> str:
    """What the flag does, with its default where that says something."""
    described, default = FLAGS[name], getattr(TrainConfig(), name)
    if described.kind is SWITCH or default in (None, "") or "default" in described.help:
        return described.help
    return f"{described.help} (default: {_shown(default)})"


def merge_sources(flags: Mapping[str, object], file: Path | None = None) -> TrainConfig:
    """The validated configuration from `flags` (text or values, None: not given) and a TOML file.

    A flag wins over the file, the file over the default.
    """
    given: dict[str, Any] = {}
    if file is not None:
        for key, value in _load_toml(file).items():
            name = _known(key, f"{file}: ")
            if name in given:
                raise UsageError(f"{file}: {_dashed(name)} is given twice, with - and with _")
            given[name] = _read(name, FLAGS[name].kind.from_value, value, f"{file}: ")
    for key, value in flags.items():
        name = _known(key, "")
        kind = FLAGS[name].kind
        if value is not None:
            reader = kind.from_text if isinstance(value, str) else kind.from_value
            given[name] = _read(name, reader, value, "")
    return TrainConfig(**given).validated()


def _load_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file}: cannot read the configuration: {error.strerror}") from None
    except ValueError as error:  # TOML syntax, or no UTF-8
        raise UsageError(f"{file}: expected a TOML file; {error}") from None


def _known(key: str, where: str) -> str:
    """The field that `key`, written with - or _, names."""
    name = key.replace("-", "_")
    if name not in FLAGS:
        nearest = REPLACED.get(name) or difflib.get_close_matches(name, FLAGS, n=1, cutoff=0.0)[0]
        raise UsageError(f"{where}unknown key {key!r}; the nearest is {_dashed(nearest)!r}")
    return name


def _read(name: str, reader: Callable[[Any], object], value: object, where: str) -> object:
    try:
        return reader(value)
    except UsageError as error:
        raise UsageError(f"{where}{_dashed(name)}: {error}") from None
    except (ValueError, OverflowError):
        expected = FLAGS[name].kind.expected
        raise UsageError(f"{where}{_dashed(name)}: expected {expected}; got {value!r}") from None


def to_toml(config: TrainConfig) -> str:
    """`config` as a TOML file that :func:`merge_sources` reads back; None is left out."""
    values = {name: getattr(config, name) for name in FLAGS}
    lines = [f"{_dashed(k)} = {_toml(v)}\n" for k, v in values.items() if v is not None]
    return "".join(lines)


def _toml(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case tuple() if all(isinstance(item, int) for item in value):
            return str(list(value))
    # JSON escapes text as TOML does, but for DEL.
    return json.dumps(_shown(value), ensure_ascii=False).replace("\x7f", "\\u007f")
