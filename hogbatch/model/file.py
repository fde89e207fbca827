"""The model file: what `train` saves and `predict` loads, with only NumPy and safetensors.

A safetensors file that contains the tensors without padding under their names, and `scaler.mean`,
`scaler.scale`, `labels.rows`, `features.names` (the bytes of a JSON list in UTF-8),
`label_vectors.indptr`, `.labels` and `.values`, `nearest_rows.indptr` and `.labels`, and
`nearest_rows.vectors.` with the three names of label vectors. Tensors of the further members of an
ensemble have names that start with "2/", "3/" and so on. Its metadata has one entry,
"hogbatch-model-1": eight hex digits, the CRC-32 of the text after them, then that text: JSON with
network, encoding, index base, training rows, about, and the CRC-32 of each tensor.

Safetensors detects a truncated file but not a flipped byte, hence the checksums. It writes metadata
entries in random order; with a single entry, equal models have equal files.
"""

import json
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from hogbatch.config.losses import LOSSES
from hogbatch.data.csr import ascends
from hogbatch.data.encode import Encoding
from hogbatch.data.facts import Frequencies
from hogbatch.data.scale import Scaler
from hogbatch.data.schema import Count, Range, convert, expect, is_indptr, within
from hogbatch.data.table.encoding import TableEncoding
from hogbatch.errors import DataError, SaveError
from hogbatch.machine.budget import require
from hogbatch.machine.files import replace_file
from hogbatch.model.label_vectors import LabelVectors, NearestRows
from hogbatch.model.network import Network
from hogbatch.model.tensors import Arrays, crc32_of, header, in_file_order, pieces
from hogbatch.model.trained import Model
from hogbatch.version import version

FORMAT: Final = "hogbatch-model-1"
TABLE: Final = "table."  # starts the names of the arrays of a table encoding
VECTORS: Final = "label_vectors."  # starts the names of the arrays of label vectors
ROWS: Final = "nearest_rows."  # and of those of nearest rows
POSITION: Final = re.compile("[0-9]{1,9}")  # of the label column


@dataclass(frozen=True, slots=True)
class Description:
    """The metadata of a model file."""

    network: dict[str, Any]
    encoding: Encoding
    index_base: Annotated[int, Range(0, 1)] | None
    about: dict[str, str]
    crc32: dict[str, Annotated[int, Range(0, 2**32 - 1)]]  # by tensor
    table: dict[str, Any] | None = None  # missing in files of versions without tables,
    train_rows: Count | None = None  # and in those of versions without frequencies,
    threshold: float = 0.5  # and in those of versions that did not choose it
    label_vectors: bool = False  # written if there are some: earlier versions refuse such files
    nearest_rows: Count = 0  # the same


def save_model(model: Model, path: str | Path) -> None:
    """Write `model` to `path` atomically: a crash leaves either the earlier file or the new one.

    SaveError if that fails; an earlier file is then unchanged.
    """
    target = Path(os.path.expanduser(path))
    try:
        replace_file(target, _content(model))
    except OSError as error:
        intact = "; the earlier file is intact" if target.is_file() else ""
        reason = error.strerror or error
        raise SaveError(f"{target}: cannot save the model: {reason}{intact}") from error


def write_model(model: Model, stream: BinaryIO) -> None:
    """Write the bytes of the model file to `stream`; SaveError if that fails."""
    try:
        stream.writelines(_content(model))
        stream.flush()
    except OSError as error:
        raise SaveError(f"cannot write the model to {stream.name}: {error.strerror}") from error


def _content(model: Model) -> Iterator[bytes]:
    """Yield the bytes of the file in pieces; the tensors may be views of any layout."""
    arrays: Arrays = dict(model.tensors)
    for number, tensors in enumerate(model.others, 2):
        arrays |= {_of_member(number, name): tensor for name, tensor in tensors.items()}
    if model.scaler is not None:
        arrays["scaler.mean"] = model.scaler.mean
        arrays["scaler.scale"] = model.scaler.scale
    if model.frequencies is not None:
        arrays["labels.rows"] = model.frequencies.of_label
    if model.feature_names is not None:
        names = json.dumps(model.feature_names, ensure_ascii=False).encode()
        arrays["features.names"] = np.frombuffer(names, np.uint8)
    if model.table is not None:
        arrays |= {f"{TABLE}{name}": array for name, array in model.table.arrays().items()}
    if model.label_vectors is not None:
        arrays |= {f"{VECTORS}{n}": each for n, each in model.label_vectors._asdict().items()}
    if (near := model.nearest_rows) is not None:
        arrays |= {f"{ROWS}indptr": near.indptr, f"{ROWS}labels": near.labels}
        arrays |= {f"{ROWS}vectors.{n}": each for n, each in near.vectors._asdict().items()}
    arrays = in_file_order(arrays)
    description = Description(
        model.network.description(),
        model.encoding,
        model.index_base,
        model.about,
        {name: crc32_of(array) for name, array in arrays.items()},
        None if model.table is None else model.table.description(),
        None if model.frequencies is None else model.frequencies.rows,
        model.threshold,
        model.label_vectors is not None,
        0 if model.nearest_rows is None else len(model.nearest_rows.indptr) - 1,
    )
    added = "label_vectors", "nearest_rows"
    described = {k: v for k, v in asdict(description).items() if v or k not in added}
    if model.encoding.kind != "logs":  # earlier versions read the other kinds
        del described["encoding"]["largest"]
    text = json.dumps(described)
    yield header(arrays, {FORMAT: _checksum(text) + text})
    for array in arrays.values():
        yield from pieces(array)


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def load_model(path: str | Path) -> Model:
    """Read a model file; DataError names the file, and the tensor if one is damaged."""
    arrays, metadata = _read(Path(os.path.expanduser(path)))
    if FORMAT not in metadata:
        got = ", ".join(metadata) or "no metadata"
        raise DataError(f"{path}: expected a model of format {FORMAT}; got {got}")
    checksum, text = metadata[FORMAT][:8], metadata[FORMAT][8:]
    if checksum != _checksum(text):
        raise DataError(f"{path}: the description of the model is damaged (CRC-32 mismatch)")
    try:
        return _model(json.loads(text), arrays)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not a valid model: {error}") from None


def _read(path: Path) -> tuple[Arrays, dict[str, str]]:
    """All tensors and the metadata of a safetensors file."""
    try:
        with path.open("rb") as opened:  # for an OSError with the reason
            size = os.fstat(opened.fileno()).st_size
        require(size, f"the model of {path}", "close other programs")
        with safe_open(path, framework="np") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dict)
            return arrays, file.metadata() or {}
    except OSError as error:
        raise DataError(f"{path}: cannot read the model: {error.strerror or error}") from None
    except SafetensorError as error:
        raise DataError(f"{path}: truncated, or not a model file: {error}") from None


def _model(described: Any, arrays: Arrays) -> Model:
    """Assemble the model, and check each tensor against its description."""
    known: Description = convert(described, Description, "description")
    if other := arrays.keys() ^ known.crc32.keys():
        raise DataError(f"expected one checksum for each tensor; these differ: {sorted(other)}")
    for name, checksum in known.crc32.items():
        if zlib.crc32(arrays[name].data) != checksum:
            raise DataError(f"tensor {name} is damaged (CRC-32 mismatch)")
    network, encoding = _network(known), known.encoding
    shapes = {tensor.name: tensor.shape for tensor in network.tensors()}
    members = 1 + sum(name.endswith("/layers.0.weight") for name in arrays)
    tensors, *others = (
        {n: _expect(arrays, _of_member(number, n), np.float32, s) for n, s in shapes.items()}
        for number in range(1, members + 1)
    )
    encoding.validate()
    labels = LOSSES[network.loss].encoding
    expect(
        (encoding.kind, encoding.outputs) == (labels, network.outputs),
        f"encoding: expected {labels} labels and {network.outputs} outputs; got {encoding.kind} "
        f"labels and {encoding.outputs}",
    )
    expect(
        0 < known.threshold < 1 and (known.threshold == 0.5 or labels == "binary"),
        f"threshold: expected 0.5, or between 0 and 1 of two labels; got {known.threshold}",
    )
    position = known.about.get("label_column", "0")
    expect(POSITION.fullmatch(position) is not None, "about.label_column: expected a number")
    return Model(
        network,
        tensors,
        encoding,
        _scaler(arrays, network.features),
        known.index_base,
        known.about,
        _frequencies(arrays, known.train_rows, network.outputs),
        _feature_names(arrays, network.features),
        _table(known.table, arrays, network.features),
        known.threshold,
        tuple(others),
        _vectors(arrays, VECTORS, network.features, network.outputs)
        if known.label_vectors
        else None,
        _nearest_rows(arrays, network, known.nearest_rows) if known.nearest_rows else None,
    )


def _of_member(number: int, name: str) -> str:
    """The name in the file of tensor `name` of a member, from 1."""
    return name if number == 1 else f"{number}/{name}"


def _network(known: Description) -> Network:
    """The network of the file; DataError names both versions if this one cannot read it."""
    try:
        return Network.from_description(known.network)
    except ValueError as error:
        raise DataError(
            f"the model was saved by hogbatch {known.about.get('hogbatch', 'unknown')} "
            f"and this is hogbatch {version()}, which cannot read its network: {error}"
        ) from None


def _scaler(arrays: Arrays, features: int) -> Scaler | None:
    if "scaler.mean" not in arrays:
        return None
    scaler = Scaler(
        *(_expect(arrays, f"scaler.{name}", np.float64, (features,)) for name in ("mean", "scale"))
    )
    scaler.validate()
    return scaler


def _frequencies(arrays: Arrays, rows: int | None, outputs: int) -> Frequencies | None:
    if rows is None:  # no label lists, or a file of a version that did not store frequencies
        return None
    of_label = _expect(arrays, "labels.rows", np.int64, (outputs,))
    expect(within(of_label, 0, rows), f"tensor labels.rows: expected numbers from 0 to {rows}")
    return Frequencies(rows, of_label)


def _vectors(arrays: Arrays, start: str, features: int, vectors: int) -> LabelVectors:
    lists = _lists(arrays, start, features, vectors)
    return LabelVectors(*lists, _expect(arrays, f"{start}values", np.float32, lists[1].shape))


def _nearest_rows(arrays: Arrays, network: Network, rows: int) -> NearestRows:
    expect("label_vectors.indptr" in arrays, "nearest rows: expected label vectors beside them")
    vectors = _vectors(arrays, f"{ROWS}vectors.", network.features, rows)
    return NearestRows(vectors, *_lists(arrays, ROWS, rows, network.outputs))


def _lists(
    arrays: Arrays, start: str, count: int, below: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """`count` ascending lists of numbers below `below`, whose arrays' names begin with `start`."""
    indptr = _expect(arrays, f"{start}indptr", np.int64, (count + 1,))
    size = int(indptr[-1])
    labels = _expect(arrays, f"{start}labels", np.int32, (size,))
    expect(
        indptr[0] == 0 and is_indptr(indptr, size),
        f"tensor {start}indptr: expected ascending positions from 0",
    )
    expect(
        within(labels, 0, below - 1) and ascends(indptr, labels),
        f"tensor {start}labels: expected ascending labels below {below}",
    )
    return indptr, labels


def _feature_names(arrays: Arrays, features: int) -> tuple[str, ...] | None:
    if "features.names" not in arrays:
        return None
    what = "tensor features.names"
    text: NDArray[np.uint8] = convert(arrays["features.names"], NDArray[np.uint8], what)
    names: tuple[str, ...] = convert(json.loads(text.tobytes()), tuple[str, ...], what)
    if len(names) != features:
        raise DataError(f"{what}: expected {features} names; got {len(names)}")
    return names


def _table(
    description: dict[str, Any] | None, arrays: Arrays, features: int
) -> TableEncoding | None:
    if description is None:  # no table, or a file of a version without tables
        return None
    own = {n.removeprefix(TABLE): array for n, array in arrays.items() if n.startswith(TABLE)}
    table = TableEncoding.from_description(description, own)
    if table.features != features:
        raise DataError(f"table: expected {features} features; got {table.features}")
    return table


def _expect(arrays: Arrays, name: str, dtype: type[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    if name not in arrays:
        raise DataError(f"tensor {name} is missing")
    array = arrays[name]
    if array.dtype != dtype or array.shape != shape:
        raise DataError(
            f"tensor {name}: expected {np.dtype(dtype)}{list(shape)}; "
            f"got {array.dtype}{list(array.shape)}"
        )
    return array
