"""The description of a server: its processors and their speeds, read from a TOML file.

Figures are counts, or in seconds, bytes, or bytes or operations per second. Every section names the
source of its figures. A file may leave out figures that `estimates.py` derives from another
description or from a data sheet. Fields, formulas and an example: docs/servers.md.
"""

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from hogbatch.errors import UsageError
from hogbatch.simulate.hardware.estimates import Table, estimated, refuse, scaled

Sources = Mapping[str, str]  # by figure, where its source is not that of the section


@dataclass(frozen=True, slots=True)
class Memory:
    """Speeds of caches and memory, in bytes per second, and the sizes of caches in bytes."""

    private_cache: int  # bytes, of one core
    shared_cache: int  # bytes, of all cores that share it
    private_speed: float  # of one core, weights in its private cache
    shared_speed: float  # of one core, weights in the shared cache
    memory_speed: float  # of one core, weights in memory
    server_speed: float  # memory, all cores together
    near_speed: float  # of one core, lines written by a core that shares its cache
    far_speed: float  # of one core, lines written by other cores
    copy_speed: float  # of one core, bytes copied from memory to memory
    barrier_seconds: float  # of a barrier, for each thread after the first, with one shared cache
    source: str
    sources: Sources = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Dense:
    """Costs of dense layers on one core."""

    flops: float  # per second, in large products
    batch_seconds: float  # of a batch, whatever its size
    layer_seconds: float  # of a layer in a batch
    row_seconds: float  # of a row
    cell_seconds: float  # of one cell of activations (rows x outputs), all passes together
    exp_seconds: float  # of one sigmoid or tanh, forward and backward
    score_seconds: float  # of the loss and the gradient of one score
    step_seconds: float  # of the step of one parameter by an optimizer with slots
    source: str
    sources: Sources = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sparse:
    """Costs of a sparse first layer and of linear models on one core."""

    value_seconds: float  # of a stored value, whatever the width
    cell_seconds: float  # of a stored value, per output: forward and gradient
    touched_seconds: float  # of a touched row of weights, whatever the width
    slot_seconds: float  # of the step of one weight of a touched row, per array (weights, slots)
    line_seconds: float  # of a cache line of a touched row that is not in the private cache
    fetch_seconds: float  # of a line that a core with the same shared cache has written
    linear_row_seconds: float  # of a row of a linear model
    linear_value_seconds: float  # of a stored value of a linear model
    source: str
    sources: Sources = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hashed:
    """Costs of a hashed output layer on one core."""

    hash_seconds: float  # of one hash of a row
    candidate_seconds: float  # of an output found in a bucket, for one row
    active_seconds: float  # of an active output in a batch, whatever the width
    step_seconds: float  # per weight of an active output and array (weights, slots)
    insert_seconds: float  # of putting an output into one table
    source: str
    sources: Sources = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cpu:
    """The processors of a server."""

    model: str
    threads: int  # that run at the same time: logical cores
    cores: int  # physical cores
    cores_per_cache: int  # cores that share their last-level cache
    smt_gain: float  # speed of a core with all its threads, relative to one thread
    slice_seconds: float  # for which a thread runs if there are more threads than logical cores
    memory: Memory
    dense: Dense
    sparse: Sparse
    hashed: Hashed
    source: str
    sources: Sources = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServerGpu:
    """One GPU, or the host in place of one (`gpu:host`)."""

    ordinal: int | Literal["host"]
    model: str
    flops: float  # per second, in large float32 products
    fill_cells: float  # cells of a product that keep half of the device busy
    memory_speed: float  # bytes per second of the passes of a batch
    exchange_speed: float  # bytes per second of the passes before a merge
    step_seconds: float  # of a batch, whatever its size
    launch_seconds: float  # of one operation of a batch
    score_seconds: float  # of the loss and the gradient of one score
    value_seconds: float  # of a stored value of a sparse row
    cell_seconds: float  # of a stored value of a sparse row, per output of the first layer
    touched_seconds: float  # of a touched row of a sparse first layer, per output
    link_speed: float  # bytes per second between host and device
    link_seconds: float  # of a transfer, whatever its size
    mapped_speed: float  # bytes per second of kernels that read or write the host's memory
    host_add_speed: float  # bytes of parameters per second, for a change added by the host
    source: str
    sources: Sources = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Server:
    """A server: its processors, and where the figures are from."""

    name: str
    about: str
    cpu: Cpu
    gpus: tuple[ServerGpu, ...] = ()  # `gpu:host` is one of them where it is described


def bundled_names() -> list[str]:
    """Return the names of the bundled descriptions."""
    files = resources.files("hogbatch.simulate.hardware").joinpath("bundled").iterdir()
    return sorted(file.name[:-5] for file in files if file.name.endswith(".toml"))


def read_server(name_or_path: str) -> Server:
    """Read a bundled description by name, or a TOML file.

    Raises UsageError if there is no such description, or if it is not valid.
    """
    return parse_server(_read(name_or_path, f"server {name_or_path!r}"), name_or_path)


def _read(name_or_path: str, what: str) -> str:
    """The text of a bundled description or a file; `what` begins the error message."""
    path = Path(name_or_path)
    if name_or_path in bundled_names():
        bundled = resources.files("hogbatch.simulate.hardware").joinpath(
            "bundled", f"{name_or_path}.toml"
        )
        return bundled.read_text(encoding="utf-8")
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(
            f"{what}: expected one of {', '.join(bundled_names())}, or a TOML file; reading it "
            f"failed: {reason}"
        ) from None


def parse_server(text: str, file: str) -> Server:
    """Return the server that `text` describes.

    `file` is its name in error messages, and the place of a file that it is based on. Raises
    UsageError if the description is not valid.
    """
    table = _parse(text, file)
    if "based_on" in table:
        base = _base(table.pop("based_on"), file)
        cpu = table.get("cpu", {})
        if isinstance(cpu, dict):
            table["cpu"] = scaled(cpu, asdict(base.cpu), base.name, f"{file}: key cpu.")
    gpus = table.get("gpus")
    if isinstance(gpus, list):
        table["gpus"] = [
            estimated(gpu, f"{file}: key gpus[{n}].") if isinstance(gpu, dict) else gpu
            for n, gpu in enumerate(gpus)
        ]
    server = cast(Server, _section(Server, table, file, ""))
    _check_counts(server, file)
    return server


def _parse(text: str, file: str) -> Table:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: this is not valid TOML: {error}") from None


def _base(name: object, file: str) -> Server:
    """Return the description that `file` is based on: a bundled one, or a file next to `file`."""
    key = f"{file}: key based_on"
    if not isinstance(name, str):
        refuse(key, "text", name)
    source = name if name in bundled_names() else str(Path(file).parent / name)
    text = _read(source, f"{key}, {name!r}")
    if "based_on" in _parse(text, source):
        refuse(key, "a description that is not based on another one", name)
    return parse_server(text, source)


def _section(kind: type[Any], value: object, file: str, key: str) -> object:
    """Return the dataclass `kind` with the values of a table."""
    if not isinstance(value, dict):
        refuse(f"{file}: key {key}", "a table", value)
    prefix = f"{key}." if key else ""
    known = {each.name: each for each in fields(kind)}
    hints = get_type_hints(kind)
    for name in value:
        if name == "factors" and key.startswith("cpu"):
            raise UsageError(f"{file}: key {prefix}{name} needs the key based_on")
        if name not in known:
            expected = [*known, "based_on"] if kind is Server else known
            raise UsageError(
                f"{file}: key {prefix}{name} is unknown; expected one of {', '.join(expected)}"
            )
    optional = {"gpus", "sources"}
    for name in known:
        if name not in value and name not in optional:
            raise UsageError(
                f"{file}: key {prefix}{name} is missing; expected {_wanted(hints[name])}"
            )
    values = {name: _value(hints[name], value[name], file, prefix + name) for name in value}
    for name in cast(Sources, values.get("sources", {})):
        if name not in known:
            raise UsageError(
                f"{file}: key {prefix}sources.{name} names no figure; expected one of "
                f"{', '.join(known)}"
            )
    return kind(**values)


def _value(hint: Any, value: object, file: str, key: str) -> object:
    """Return one value with the type `hint`; UsageError if it has another one."""
    if is_dataclass(hint):
        return _section(cast(type[Any], hint), value, file, key)
    if get_origin(hint) is tuple:
        if not isinstance(value, list):
            refuse(f"{file}: key {key}", _wanted(hint), value)
        kind = get_args(hint)[0]
        return tuple(_section(kind, each, file, f"{key}[{n}]") for n, each in enumerate(value))
    if hint == Sources:
        texts = isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
        if not texts:
            refuse(f"{file}: key {key}", _wanted(hint), value)
        return value
    accepted = _accepts(hint, value)
    if not accepted:
        refuse(f"{file}: key {key}", _wanted(hint), value)
    return float(cast(float, value)) if hint is float else value


def _accepts(hint: Any, value: object) -> bool:
    if hint is str:
        return isinstance(value, str) and value.strip() != ""
    if isinstance(value, bool):
        return False
    if hint is int:
        return isinstance(value, int) and value > 0
    if hint is float:
        return isinstance(value, int | float) and 0 < value < math.inf
    return value == "host" or (isinstance(value, int) and value >= 0)  # the ordinal of a GPU


def _wanted(hint: Any) -> str:
    """What a value with the type `hint` must be, for error messages."""
    if is_dataclass(hint):
        return "a table"
    if get_origin(hint) is tuple:
        return "an array of tables"
    if hint == Sources:
        return "a table with texts"
    names = {str: "text", int: "a whole number above 0", float: "a number above 0"}
    return names.get(hint, 'a number of a GPU from 0, or "host"')


def _check_counts(server: Server, file: str) -> None:
    """Refuse counts that contradict each other."""
    cpu = server.cpu
    if cpu.threads < cpu.cores:
        refuse(f"{file}: key cpu.threads", f"at least cpu.cores, {cpu.cores}", cpu.threads)
    if cpu.cores_per_cache > cpu.cores:
        refuse(
            f"{file}: key cpu.cores_per_cache",
            f"at most cpu.cores, {cpu.cores}",
            cpu.cores_per_cache,
        )
    ordinals = [gpu.ordinal for gpu in server.gpus]
    if len(set(ordinals)) < len(ordinals):
        refuse(f"{file}: key gpus.ordinal", "different for each GPU", ordinals)


def to_toml(server: Server) -> str:
    """Return `server` as TOML."""
    text = "\n".join(_table(server, ""))
    return text.lstrip("\n") + "\n"


def _table(described: Any, prefix: str) -> list[str]:
    """The lines of a dataclass: plain values first, because tables follow them in TOML."""
    values = {each.name: getattr(described, each.name) for each in fields(described)}
    lines = [f"{name} = {_plain(value)}" for name, value in values.items() if _is_plain(value)]
    for name, value in values.items():
        key = f"{prefix}{name}"
        if is_dataclass(value):
            lines += ["", f"[{key}]", *_table(value, f"{key}.")]
        elif isinstance(value, tuple):
            for each in value:
                lines += ["", f"[[{key}]]", *_table(each, f"{key}.")]
        elif not _is_plain(value) and value:
            lines += ["", f"[{key}]", *(f"{each} = {_plain(text)}" for each, text in value.items())]
    return lines


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float)


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if "e" in f"{value:.4g}" else repr(float(f"{value:.4g}"))
    return json.dumps(value, ensure_ascii=False)
