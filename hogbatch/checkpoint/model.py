"""The model file: what `train` saves and `predict` loads, with NumPy and safetensors alone.

A safetensors file that holds the real tensors under their names (and `standardizer.mean`,
`standardizer.scale`, `labels.rows`). Its metadata has one entry, "hogbatch-model-1": eight hex
digits of CRC-32, then the JSON they are of, with network, encoding, index base, training rows,
about, and the CRC-32 of each tensor.

safetensors itself notices a truncated file but no flipped byte, hence the checksums. It writes
several entries of metadata in random order; with one, equal models make equal files.
"""

import json
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from hogbatch.checkpoint.files import replace_file
from hogbatch.data.batch import Inputs, csr_inputs, dense_inputs
from hogbatch.data.encode import Encoding
from hogbatch.data.standardize import Standardizer
from hogbatch.errors import DataError, SaveError, UsageError
from hogbatch.kernels.blocks import OUTPUTS, Layer, Seen, between, blocks, count, hidden
from hogbatch.kernels.contract import ACTIVATIONS, SOFTMAX, SOFTMAX_MANY
from hogbatch.losses import LOSSES, probabilities
from hogbatch.models import DenseLayer, Network

Floats = NDArray[np.float32]
Lists = tuple[NDArray[np.int64], NDArray[np.int32]]  # indptr[N + 1] and indices, as in `Labels`
Arrays = dict[str, NDArray[Any]]

FORMAT: Final = "hogbatch-model-1"
CHUNK: Final = 1 << 20  # floats of the widest intermediate result, 4 MiB


class Frequencies(NamedTuple):
    """How often the labels occurred in training."""

    rows: int  # N
    of_label: NDArray[np.int64]  # [C]: rows that have the label


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
    about: dict[str, str]  # "hogbatch" version, "data" and its "label" column, "lsh" settings
    frequencies: Frequencies | None = field(default=None, repr=False)  # of multilabel, if known

    def scores(self, inputs: Any) -> Floats:
        """Decision values [N, C]; of real labels, standardised as the targets were."""
        rows = _as_inputs(inputs, self.network.features)
        out = np.empty((count(rows), self.network.outputs), np.float32)
        for where, scores in self._blocks(rows):
            out[where] = scores
        return out

    def predict_proba(self, inputs: Any) -> Floats:
        """Probabilities as :func:`hogbatch.losses.probabilities` shapes them."""
        return probabilities(LOSSES[self.network.loss], self.scores(inputs))

    def predict(self, inputs: Any) -> NDArray[Any]:
        """The likeliest labels as the training file had them.

        binary, classes: float64[N]. multilabel: uint8[N, C], 1 where a label is likelier than not;
        UsageError under multilabel-softmax, which only ranks labels. real: float32[N].
        """
        if self.network.loss == "multilabel-softmax":
            raise UsageError(
                "loss multilabel-softmax ranks labels and does not say how many are right: ask for "
                "the best K (top, --top K) or for all probabilities (predict_proba, --proba)"
            )
        if self.encoding.kind == "multilabel":
            rows = _as_inputs(inputs, self.network.features)
            likely = np.empty((count(rows), self.network.outputs), np.uint8)
            for where, scores in self._blocks(rows):
                likely[where] = scores > 0
            return likely
        if self.network.outputs > 1:
            return np.array(self.encoding.classes)[self.top(inputs, 1)[:, 0]]
        single = self.scores(inputs)[:, 0]
        if self.encoding.kind == "real":
            unit: Floats = single * np.float32(self.encoding.scale)
            return unit + np.float32(self.encoding.offset)
        return np.array(self.encoding.classes)[(single > 0).astype(np.intp)]

    def top(self, inputs: Any, k: int) -> NDArray[np.int64]:
        """The columns with the `k` highest scores of each row, best first: int64[N, k].

        Of equal scores the one of the lower column counts as the higher.
        """
        found = [seen.columns for _, seen in self.look(inputs, k)]
        return np.concatenate([*found, np.empty((0, k), np.int64)])

    def top_proba(self, inputs: Any, k: int) -> tuple[NDArray[np.int64], Floats]:
        """The same with their probabilities, float32[N, k], as in `predict_proba`."""
        loss = LOSSES[self.network.loss]
        if loss.name in ("hinge", "squared"):
            raise UsageError(
                f"loss {loss.name} gives no probabilities; use decision values instead"
            )
        kind = loss.kind if loss.kind in (SOFTMAX, SOFTMAX_MANY) else None
        found = [(seen.columns, seen.chances()) for _, seen in self.look(inputs, k, kind)]
        columns = np.concatenate([*(each for each, _ in found), np.empty((0, k), np.int64)])
        return columns, np.concatenate([*(each for _, each in found), np.empty((0, k), np.float32)])

    def look(
        self, inputs: Any, k: int, kind: int | None = None, true: Lists | None = None
    ) -> Iterator[tuple[int, Seen]]:
        """See the scores of part after part of the rows, each with its first row.

        For `k`, `kind` and the `true` columns of all rows see :class:`Seen`.
        """
        if not 1 <= k <= self.network.outputs:
            raise UsageError(f"expected k from 1 to {self.network.outputs}; got {k}")
        for start, part in self.parts(inputs):
            rows = count(part)
            seen = Seen(rows, k, kind, _cut(true, start, start + rows) if true else None)
            for first, scores in blocks(self.layers[-1], part):
                seen.see(first, scores)
            yield start, seen

    def parts(self, inputs: Any) -> Iterator[tuple[int, Inputs]]:
        """What the last layer is given for part after part of the rows, each with its first row."""
        rows, widths = _as_inputs(inputs, self.network.features), self._widths()
        size = max(1, CHUNK // max(rows.dense.shape[1], *widths))
        for start in range(0, count(rows), size):
            part = between(rows, start, start + size)
            if self.standardizer is not None:
                part = self.standardizer.apply(part)
            yield start, hidden(self.layers, part)

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The network as it is computed; the tensors where they lie."""
        found = []
        for index, layer in enumerate(self.network.layers):
            weight, bias = (self.tensors[f"layers.{index}.{each}"] for each in ("weight", "bias"))
            found.append(Layer(weight, bias, ACTIVATIONS[layer.activation], layer.by_neuron))
        return tuple(found)

    def _widths(self) -> list[int]:
        """Those of the intermediate results."""
        *below, last = (layer.width for layer in self.network.layers)
        return [*below, min(last, OUTPUTS)]

    def _blocks(self, inputs: Inputs) -> Iterator[tuple[tuple[slice, slice], Floats]]:
        """All scores, block by block, each with its place in [N, C]; scratch."""
        for start, part in self.parts(inputs):
            for first, scores in blocks(self.layers[-1], part):
                rows, columns = scores.shape
                yield (slice(start, start + rows), slice(first, first + columns)), scores


def _cut(lists: Lists, start: int, stop: int) -> Lists:
    """Those of rows [start, stop)."""
    indptr, indices = lists
    own = indptr[start : stop + 1]
    return own - own[0], indices[own[0] : own[-1]]


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

    SaveError when that fails; an earlier file is then untouched.
    """
    target = Path(path)
    try:
        replace_file(target, [_to_bytes(model)])
    except OSError as error:
        intact = "; the earlier file is intact" if target.is_file() else ""
        reason = error.strerror or error
        raise SaveError(f"{target}: cannot save the model: {reason}{intact}") from error


def _to_bytes(model: Model) -> bytes:
    arrays: Arrays = {name: np.ascontiguousarray(each) for name, each in model.tensors.items()}
    if model.standardizer is not None:
        arrays["standardizer.mean"] = np.ascontiguousarray(model.standardizer.mean)
        arrays["standardizer.scale"] = np.ascontiguousarray(model.standardizer.scale)
    if model.frequencies is not None:
        arrays["labels.rows"] = np.ascontiguousarray(model.frequencies.of_label)
    description = {
        "network": asdict(model.network),
        "encoding": asdict(model.encoding),
        "index_base": model.index_base,
        "train_rows": model.frequencies.rows if model.frequencies is not None else None,
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
        _frequencies(arrays, description.get("train_rows"), network.outputs),
    )


def _standardizer(arrays: Arrays, features: int) -> Standardizer | None:
    if "standardizer.mean" not in arrays:
        return None
    mean, scale = (
        _expect(arrays, f"standardizer.{name}", np.float64, (features,))
        for name in ("mean", "scale")
    )
    return Standardizer(mean, scale)


def _frequencies(arrays: Arrays, rows: int | None, outputs: int) -> Frequencies | None:
    if rows is None:  # not multilabel, or from before they were kept
        return None
    return Frequencies(rows, _expect(arrays, "labels.rows", np.int64, (outputs,)))


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
