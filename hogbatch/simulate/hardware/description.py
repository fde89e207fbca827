"""The description of a server: its processors and their speeds, read from a TOML file.

Figures are counts, or in seconds, bytes, or bytes or operations per second. A file may leave out
figures that `estimates.py` derives from another description or from a data sheet. Formulas and an
example: docs/servers.md.
"""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct, ValidationError, convert, to_builtins

from hogbatch.errors import UsageError
from hogbatch.simulate.hardware.estimates import Positive, Table, estimated, scaled

BUNDLED: Final = Path(__file__).parent / "bundled"

Count = Annotated[int, Meta(ge=1)]
Text = Annotated[str, Meta(min_length=1)]


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Figures with the text that says where they are from."""

    source: Text
    sources: dict[str, str] = {}  # by figure, where its source is not that of the section


class Memory(Section, frozen=True):
    """Speeds of caches and memory, in bytes per second, and the sizes of caches in bytes."""

    private_cache: Count  # bytes, of one core
    shared_cache: Count  # bytes, of all cores that share it
    private_speed: Positive  # of one core, weights in its private cache
    shared_speed: Positive  # of one core, weights in the shared cache
    memory_speed: Positive  # of one core, weights in memory
    server_speed: Positive  # memory, all cores together
    near_speed: Positive  # of one core, lines written by a core that shares its cache
    far_speed: Positive  # of one core, lines written by other cores
    copy_speed: Positive  # of one core, bytes copied from memory to memory
    barrier_seconds: Positive  # for each thread after the first, with one shared cache


class Dense(Section, frozen=True):
    """Costs of dense layers on one core."""

    flops: Positive  # per second, in large products
    batch_seconds: Positive  # of a batch, whatever its size
    layer_seconds: Positive  # of a layer in a batch
    row_seconds: Positive  # of a row
    cell_seconds: Positive  # of one cell of activations (rows x outputs), all passes together
    exp_seconds: Positive  # of one selu, sigmoid or tanh, forward and backward
    score_seconds: Positive  # of the loss and the gradient of one score
    step_seconds: Positive  # of the step of one parameter by an optimizer with slots


class Sparse(Section, frozen=True):
    """Costs of a sparse first layer and of linear models on one core."""

    value_seconds: Positive  # of a stored value, whatever the width
    cell_seconds: Positive  # of a stored value, per output: forward and gradient
    touched_seconds: Positive  # of a touched row of weights, whatever the width
    slot_seconds: Positive  # of the step of one weight of a touched row, per array (weights, slots)
    line_seconds: Positive  # of a cache line of a touched row that is not in the private cache
    fetch_seconds: Positive  # of a line that a core with the same shared cache has written
    linear_row_seconds: Positive  # of a row of a linear model
    linear_value_seconds: Positive  # of a stored value of a linear model


class Hashed(Section, frozen=True):
    """Costs of a hashed output layer on one core."""

    hash_seconds: Positive  # of one hash of a row
    candidate_seconds: Positive  # of an output found in a bucket, for one row
    active_seconds: Positive  # of an active output in a batch, whatever the width
    step_seconds: Positive  # per weight of an active output and array (weights, slots)
    insert_seconds: Positive  # of putting an output into one table


class Cpu(Section, frozen=True):
    """The processors of a server."""

    model: Text
    threads: Count  # that run at the same time: logical cores
    cores: Count  # physical cores
    cores_per_cache: Count  # cores that share their last-level cache
    smt_gain: Positive  # speed of a core with all its threads, relative to one thread
    slice_seconds: Positive  # for which a thread runs if there are more threads than logical cores
    memory: Memory
    dense: Dense
    sparse: Sparse
    hashed: Hashed

    def __post_init__(self) -> None:
        if self.threads < self.cores:
            raise ValueError(f"threads must be at least cores, {self.cores}; got {self.threads}")
        if self.cores_per_cache > self.cores:
            raise ValueError(
                f"cores_per_cache must be at most cores, {self.cores}; got {self.cores_per_cache}"
            )


class ServerGpu(Section, frozen=True):
    """One GPU, or the host in place of one (`gpu:host`)."""

    ordinal: Annotated[int, Meta(ge=0)] | Literal["host"]
    model: Text
    flops: Positive  # per second, in large float32 products
    fill_cells: Positive  # cells of a product that keep half of the device busy
    memory_speed: Positive  # bytes per second of the passes of a batch
    exchange_speed: Positive  # bytes per second of the passes before a merge
    step_seconds: Positive  # of a batch, whatever its size
    launch_seconds: Positive  # of one operation of a batch
    score_seconds: Positive  # of the loss and the gradient of one score
    value_seconds: Positive  # of a stored value of a sparse row
    cell_seconds: Positive  # of a stored value of a sparse row, per output of the first layer
    touched_seconds: Positive  # of a touched row of a sparse first layer, per output
    link_speed: Positive  # bytes per second between host and device
    link_seconds: Positive  # of a transfer, whatever its size
    mapped_speed: Positive  # bytes per second of kernels that read or write the host's memory


class Server(Struct, frozen=True, forbid_unknown_fields=True):
    """A server and its processors."""

    name: Text
    about: Text
    cpu: Cpu
    gpus: tuple[ServerGpu, ...] = ()  # `gpu:host` is one of them where it is described

    def __post_init__(self) -> None:
        ordinals = [gpu.ordinal for gpu in self.gpus]
        if len(set(ordinals)) < len(ordinals):
            raise ValueError(f"gpus must have different ordinals; got {ordinals}")


def bundled_names() -> list[str]:
    return sorted(file.stem for file in BUNDLED.glob("*.toml"))


def read_server(name_or_path: str, users: tuple[str, ...] = ()) -> Server:
    """Read a bundled description by name, or a TOML file.

    `users` are the descriptions that are based on it. Raises UsageError if there is no such
    description, or if it is not valid.
    """
    bundled = name_or_path in bundled_names()
    path = BUNDLED / f"{name_or_path}.toml" if bundled else Path(name_or_path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(
            f"server {name_or_path!r}: expected one of {', '.join(bundled_names())}, or a TOML "
            f"file; reading it failed: {reason}"
        ) from None
    return parse_server(text, name_or_path, users)


def parse_server(text: str, file: str, users: tuple[str, ...] = ()) -> Server:
    """Return the server that `text` describes.

    `file` is its name in error messages, and the place of a file that it is based on. Raises
    UsageError if the description is not valid.
    """
    try:
        table = tomllib.loads(text)
        if "based_on" in table:
            base = _base(convert(table.pop("based_on"), Text), (*users, file))
            table["cpu"] = scaled(table.get("cpu", {}), to_builtins(base.cpu), "cpu")
        gpus = convert(table.get("gpus", []), list[Table])
        return convert(table | {"gpus": [estimated(gpu) for gpu in gpus]}, Server)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: this is not valid TOML: {error}") from None
    except ValidationError as error:
        raise UsageError(f"{file}: {error}") from None


def _base(name: str, users: tuple[str, ...]) -> Server:
    """Return the description `name`: a bundled one, or a file next to the last of its `users`."""
    source = name if name in bundled_names() else str(Path(users[-1]).parent / name)
    if source in users:
        raise UsageError(f"{users[-1]}: based_on = {name!r}: a description is based on itself")
    return read_server(source, users)


def to_toml(server: Server) -> str:
    return "\n".join(_lines(to_builtins(server), "")) + "\n"


def _lines(table: Table, prefix: str) -> Iterator[str]:
    """The lines of a table: plain values first, because tables follow them in TOML."""
    for key, value in table.items():
        if isinstance(value, str | int | float):
            yield f"{key} = {_plain(value)}"
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from ("", f"[{prefix}{key}]", *_lines(value, f"{prefix}{key}."))
        elif isinstance(value, list | tuple):
            for each in value:
                yield from ("", f"[[{prefix}{key}]]", *_lines(each, f"{prefix}{key}."))


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if "e" in f"{value:.4g}" else repr(float(f"{value:.4g}"))
    return json.dumps(value, ensure_ascii=False)
