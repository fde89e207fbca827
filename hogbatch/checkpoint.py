"""The model file: what `train` saves and `predict` loads, with NumPy and safetensors alone.

A safetensors file that holds the real tensors under their names (and `standardizer.mean`,
`standardizer.scale`). Its metadata has one entry, "hogbatch-model-1": eight hex digits of CRC-32,
then the JSON they are of, with network, encoding, index base, about, and the CRC-32 of each tensor.

safetensors itself notices a truncated file but no flipped byte, hence the checksums. It writes
several entries of metadata in random order; with one, equal models make equal files.
"""

import json
import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from hogbatch import kernels
from hogbatch.data.batch import Inputs, csr_inputs, dense_inputs
from hogbatch.data.encode import Encoding
from hogbatch.data.standardize import Standardizer
from hogbatch.errors import DataError, SaveError, UsageError
from hogbatch.kernels import network as loop
from hogbatch.losses import LOSSES, probabilities
from hogbatch.models import DenseLayer, Network

Floats = NDArray[np.float32]
Arrays = dict[str, NDArray[Any]]

FORMAT: Final = "hogbatch-model-1"
CHUNK: Final = 1 << 22  # floats of the widest intermediate result, 16 MiB


@dataclass(frozen=True, eq=False)  # no slots: they leave no room for the cached property
class Model:
    """A trained network with all it takes to use it on raw rows.

    The rows to predict for are an :class:`Inputs`, a matrix [N, F] of numbers, or anything like
    scipy's csr_array (`indptr`, `indices`, `data`). They are standardised here, not by the caller.
    UsageError when their features are not those of the network.
    """

    network: Network
    tensors: dict[str, Floats] = field(repr=False)  # real shapes, by Tensor.name
    encoding: Encoding
    standardizer: Standardizer | None = field(repr=False)
    index_base: int | None  # what libsvm files count their features from
    about: dict[str, str]  # "hogbatch" version, "data" and its "label" column

    def scores(self, inputs: Any) -> Floats:
        """Decision values [N, C]; of real labels, standardised as the targets were."""
        rows = _as_inputs(inputs, self.network.features)
        out = np.empty((_count(rows), self.network.outputs), np.float32)
        for start, part in self._parts(rows):
            out[start : start + len(part)] = part
        return out

    def predict_proba(self, inputs: Any) -> Floats:
        """Probabilities as :func:`hogbatch.losses.probabilities` shapes them."""
        return probabilities(LOSSES[self.network.loss], self.scores(inputs))

    def predict(self, inputs: Any) -> NDArray[Any]:
        """The likeliest labels as the training file had them.

        binary, classes: float64[N]. multilabel: uint8[N, C], 1 where a label is likelier than not.
        real: float32[N].
        """
        scores = self.scores(inputs)
        if self.encoding.kind == "real":
            unit: Floats = scores[:, 0] * np.float32(self.encoding.scale)
            return unit + np.float32(self.encoding.offset)
        if self.encoding.kind == "multilabel":
            return (scores > 0).astype(np.uint8)
        places = scores.argmax(axis=1) if self.network.outputs > 1 else scores[:, 0] > 0
        return np.array(self.encoding.classes)[places.astype(np.intp)]

    def top(self, inputs: Any, k: int) -> NDArray[np.int64]:
        """The columns with the `k` highest scores of each row, best first: int64[N, k]."""
        if not 1 <= k <= self.network.outputs:
            raise UsageError(f"expected k from 1 to {self.network.outputs}; got {k}")
        rows = _as_inputs(inputs, self.network.features)
        out = np.empty((_count(rows), k), np.int64)
        for start, part in self._parts(rows):
            out[start : start + len(part)] = _highest(part, k)
        return out

    @cached_property
    def _params(self) -> Floats:
        """The flat, padded parameters, made when first needed."""
        params = np.empty(self.network.parameters, np.float32)
        self.network.to_stored(self.tensors, params)
        return params

    def _parts(self, inputs: Inputs) -> Iterator[tuple[int, Floats]]:
        """Scores [<= B, C] with the row each part starts at; a part is good until the next."""
        none = np.empty(0, np.float32)
        plan = self.network.plan()
        network = loop.Network(kernels.load("reference"), np, plan, self._params, none, none)
        widest = max(inputs.dense.shape[1], *(max(layer.fan_out for layer in plan),) * 2)
        size = max(1, CHUNK // widest)
        for start in range(0, _count(inputs), size):
            part = _slice(inputs, start, start + size)
            if self.standardizer is not None:
                part = self.standardizer.apply(part)
            scores = network.scores(part, np.arange(_count(part)))
            yield start, scores[:, : self.network.outputs]


def _highest(scores: Floats, k: int) -> NDArray[np.int64]:
    """Columns of the k highest scores, best first, equal ones by column.

    Where equal scores compete for the last place, which of them gets it is left open.
    """
    columns = np.sort(np.argpartition(-scores, k - 1, axis=1)[:, :k], axis=1)
    order = np.argsort(-np.take_along_axis(scores, columns, axis=1), axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1).astype(np.int64)


def _count(inputs: Inputs) -> int:
    return max(len(inputs.indptr) - 1, len(inputs.dense))


def _slice(inputs: Inputs, start: int, stop: int) -> Inputs:
    """Views of rows [start, stop)."""
    if not len(inputs.indptr):
        return dense_inputs(inputs.dense[start:stop])
    indptr = inputs.indptr[start : stop + 1]
    stored = slice(indptr[0], indptr[-1])
    return csr_inputs(indptr - indptr[0], inputs.indices[stored], inputs.values[stored])


def _as_inputs(given: Any, features: int) -> Inputs:
    """`given` in the form and dtypes of kernels, with its features checked."""
    if isinstance(given, Inputs):
        inputs = given
    elif hasattr(given, "indptr"):
        inputs = _from_csr(given, features)
    else:
        inputs = dense_inputs(_matrix(given))
    if not len(inputs.indptr) and inputs.dense.shape[1] != features:
        raise UsageError(f"expected {features} features; got {inputs.dense.shape[1]}")
    if len(inputs.indices) and not 0 <= inputs.indices.min() <= inputs.indices.max() < features:
        raise UsageError(
            f"expected features 0 to {features - 1}; "
            f"got {inputs.indices.min()} to {inputs.indices.max()}"
        )
    return inputs


def _from_csr(given: Any, features: int) -> Inputs:
    if getattr(given, "format", "csr") != "csr":
        raise UsageError(f"expected a matrix in CSR form; got {given.format}; call its tocsr()")
    columns = getattr(given, "shape", (0, features))[-1]
    if columns != features:
        raise UsageError(f"expected {features} features; got {columns}")
    if not getattr(given, "has_canonical_format", True):  # kernels want ascending indices
        given = given.copy()
        given.sum_duplicates()
    return csr_inputs(
        np.ascontiguousarray(given.indptr, np.int64),
        np.ascontiguousarray(given.indices, np.int32),
        np.ascontiguousarray(given.data, np.float32),
    )


def _matrix(given: Any) -> Floats:
    try:
        matrix = np.ascontiguousarray(given, np.float32)
    except (TypeError, ValueError) as error:
        raise UsageError(f"expected a matrix of numbers; {error}") from None
    if matrix.ndim != 2:
        raise UsageError(f"expected a matrix [rows, features]; got {matrix.ndim} dimensions")
    return matrix


def save_model(model: Model, path: str | Path) -> None:
    """Write `model` to `path` at once: a crash leaves the earlier file or the new one, whole.

    SaveError when that fails; the earlier file is then untouched.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        _write_through(_to_bytes(model), temporary)
        os.replace(temporary, target)
        _sync_directory(target.parent)
    except OSError as error:
        raise SaveError(
            f"{target}: cannot save the model: {error.strerror}; an earlier file is intact"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _write_through(data: bytes, path: Path) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    """Make a rename in the directory survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _to_bytes(model: Model) -> bytes:
    arrays: Arrays = {name: np.ascontiguousarray(each) for name, each in model.tensors.items()}
    if model.standardizer is not None:
        arrays["standardizer.mean"] = np.ascontiguousarray(model.standardizer.mean)
        arrays["standardizer.scale"] = np.ascontiguousarray(model.standardizer.scale)
    description = {
        "network": asdict(model.network),
        "encoding": asdict(model.encoding),
        "index_base": model.index_base,
        "about": model.about,
        "crc32": {name: zlib.crc32(array.data) for name, array in arrays.items()},
    }
    text = json.dumps(description)
    return save(arrays, {FORMAT: _checksum(text) + text})


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def load_model(path: str | Path) -> Model:
    """Read a model file; DataError names the file, and the tensor where it is one that is bad."""
    arrays, metadata = _read(Path(path))
    if FORMAT not in metadata:
        got = ", ".join(metadata) or "no metadata"
        raise DataError(f"{path}: expected a model of format {FORMAT}; got {got}")
    checksum, text = metadata[FORMAT][:8], metadata[FORMAT][8:]
    if checksum != _checksum(text):
        raise DataError(f"{path}: the description of the model is damaged (its CRC-32 is wrong)")
    try:
        return _model(json.loads(text), arrays)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: the description of the model is incomplete: {error!r}") from None


def _read(path: Path) -> tuple[Arrays, dict[str, str]]:
    """All tensors and the metadata of a safetensors file."""
    try:
        path.open("rb").close()  # for an OSError that says what is wrong
        with safe_open(path, framework="np") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dict)
            return arrays, file.metadata() or {}
    except OSError as error:
        raise DataError(f"{path}: cannot read the model: {error.strerror or error}") from None
    except SafetensorError as error:
        raise DataError(f"{path}: truncated or no model file: {error}") from None


def _model(description: dict[str, Any], arrays: Arrays) -> Model:
    """Put the model together, and check each tensor against its description."""
    features, layers, loss = (description["network"][key] for key in ("features", "layers", "loss"))
    network = Network(features, tuple(DenseLayer(**layer) for layer in layers), loss)
    for name, checksum in description["crc32"].items():
        if name not in arrays or zlib.crc32(arrays[name].data) != checksum:
            raise DataError(f"tensor {name} is damaged (its CRC-32 is wrong)")
    shapes = {tensor.name: tensor.shape for tensor in network.tensors()}
    tensors = {name: _expect(arrays, name, np.float32, shape) for name, shape in shapes.items()}
    encoding = description["encoding"]
    return Model(
        network,
        tensors,
        Encoding(**{**encoding, "classes": tuple(encoding["classes"])}),
        _standardizer(arrays, network.features),
        description["index_base"],
        description["about"],
    )


def _standardizer(arrays: Arrays, features: int) -> Standardizer | None:
    if "standardizer.mean" not in arrays:
        return None
    mean, scale = (
        _expect(arrays, f"standardizer.{name}", np.float64, (features,))
        for name in ("mean", "scale")
    )
    return Standardizer(mean, scale)


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
