"""Loading a path or bundled sample as training and test rows for kernels."""

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hogbatch.data import csr
from hogbatch.data.batch import Examples, RawInputs
from hogbatch.data.cache import DataCache
from hogbatch.data.encode import Encoding, encode, explain, infer_encoding
from hogbatch.data.order import RowNumbers, split, take
from hogbatch.data.raw import DEFAULTS, NO_COLUMNS, Columns, RawSet, ReadOptions
from hogbatch.data.readers import read_as
from hogbatch.data.samples import SAMPLES
from hogbatch.data.scale import Scaler, fit, scaled
from hogbatch.data.source import is_standard_input
from hogbatch.errors import DataError, UsageError
from hogbatch.machine.budget import require
from hogbatch.machine.printable import printable

INT32 = FLOAT32 = 4  # bytes
SCRATCH = 24  # bytes for each stored value, while sparse rows are copied (see csr.positions)


@dataclass(frozen=True, slots=True)
class LoadedData:
    """Training and test set of a run, and the information for reading later files the same way."""

    train: Examples
    test: Examples | None
    encoding: Encoding
    scaler: Scaler | None
    index_base: int | None
    fingerprint: str  # 32 hex digits; equal for equal rows, labels, weights and encoding
    skipped: int = 0  # number of skipped lines in the files
    notes: tuple[str, ...] = ()  # messages for the user about the files, one line each
    columns: Columns = NO_COLUMNS  # of the training file if it is CSV
    weights: NDArray[np.float64] | None = None  # [N] of the training rows; None: equal


def load(
    path: str | Path,
    *,
    test: str | Path | None = None,
    test_fraction: float = 0.2,
    options: ReadOptions = DEFAULTS,
    loss: str = "auto",
    scale: str = "auto",
    seed: int = 0,
    cache: DataCache | None = None,
) -> LoadedData:
    """Read DATA (a path or the name of a sample) and its test set with `options`.

    The test set is `test` if given, else that of the sample, else `test_fraction` of the rows (none
    if that is less than one row), split by `order.split` with `seed`. For `scale` see `scale.fit`.
    Raises DataError for an invalid file and UsageError for a fraction outside [0, 1).
    """
    if not 0 <= test_fraction < 1:
        raise UsageError(f"test fraction must be at least 0 and below 1; got {test_fraction}")
    if test is not None and is_standard_input(path) and is_standard_input(test):
        raise UsageError("DATA and --test are both standard input, which can be read only once")
    if test is None and _is_sample(path):
        test = path
    raw = _declared(read_as(_file(path, "train"), options, cache), options.declared)
    if not raw.features:
        raise DataError(f"{raw.source}: no row has a feature")
    other = None if test is None else _rows_as(test, _alike(options, raw), cache)
    return prepare(raw, other, test_fraction=test_fraction, loss=loss, scale=scale, seed=seed)


def prepare(
    raw: RawSet,
    other: RawSet | None,
    *,
    test_fraction: float = 0.2,
    loss: str = "auto",
    scale: str | Scaler = "auto",
    seed: int = 0,
    encoding: Encoding | None = None,
) -> LoadedData:
    """Encode the labels of `raw`, split it, unless `other` is the test set, and scale the rows.

    Both must have the same features; arguments and errors are those of `load`. An `encoding` of the
    labels and a `Scaler` of earlier data are used as they are.
    """
    kind = ""
    if encoding is None:
        encoding = infer_encoding(raw, loss)
        kind = explain(raw, encoding) if loss == "auto" else ""
    labels = encode(raw, encoding)
    classes = labels.values if encoding.kind in ("binary", "classes") else None
    training, testing = _split(raw.rows, 0 if other is not None else test_fraction, seed, classes)
    _require_memory_for_copy(raw.inputs)
    scaler, scaling = (
        (scale, "") if isinstance(scale, Scaler) else fit(scale, raw.inputs, raw.features, training)
    )
    train = Examples(scaled(raw.inputs, scaler, training), take(labels, training), raw.features)
    held_out = None
    if other is not None:
        expect_labels(other, raw.columns)
        inputs = _to_form(other.inputs, raw.features, sparse=train.sparse)
        _require_memory_for_copy(inputs)
        held_out = Examples(scaled(inputs, scaler), encode(other, encoding), raw.features)
    elif testing is not None:
        inputs = scaled(raw.inputs, scaler, testing)
        held_out = Examples(inputs, take(labels, testing), raw.features)
    read = [raw] if other is None else [raw, other]
    messages = (message for each in read for message in each.messages)
    weights = _weights(raw, training)
    return LoadedData(
        train,
        held_out,
        encoding,
        scaler,
        raw.index_base,
        _fingerprint(train, held_out, encoding, weights),
        skipped=sum(each.skipped.total for each in read),
        notes=(*messages, *filter(None, [kind, scaling])),
        columns=raw.columns,
        weights=weights,
    )


def inputs_for(
    path: str | Path,
    features: int,
    *,
    index_base: int | None = None,
    label: str | None = None,
    header: str = "auto",
    columns: Columns = NO_COLUMNS,
    cache: DataCache | None = None,
) -> RawSet:
    """Read rows for a model of `features` inputs: checked and not yet scaled.

    The columns of a CSV file are matched to `columns` of the training file. Labels are those of the
    file, or missing: `predict` ignores them, `evaluate` passes the result to `encode`. The name of
    a sample means its test file.
    """
    options = ReadOptions(label, index_base, features, header=header, columns=columns)
    return replace(_rows_as(path, options, cache), features=features)


def expect_labels(raw: RawSet, columns: Columns) -> None:
    """DataError if a file lacks the named label column of the training file."""
    if columns.label is not None and raw.labels is None and raw.label_lists is None:
        raise DataError(
            f"{raw.source} has no labels: expected the label column {columns.label!r} of the "
            "training data; if it has a different name, give it with --label"
        )


def _alike(options: ReadOptions, raw: RawSet) -> ReadOptions:
    """Options for reading the test file that belongs to `raw`, which was read with `options`."""
    label = options.label if raw.columns.position is None else None  # else `columns` contains it
    return replace(
        options,
        label=label,
        index_base=raw.index_base,
        features=raw.features,
        columns=raw.columns,
        declared=None,
    )


def _declared(raw: RawSet, features: int | None) -> RawSet:
    """Set the number of features of training data to --features, if given."""
    if features in (None, raw.features):
        return raw
    assert features is not None
    if len(raw.inputs.indptr) and raw.features < features:
        return replace(raw, features=features)
    raise DataError(f"{raw.source} has {raw.features} features; --features is {features}")


def _rows_as(path: str | Path, options: ReadOptions, cache: DataCache | None) -> RawSet:
    """Read rows for a model of `options.features` inputs and check their number of features."""
    raw = read_as(_file(path, "test"), options, cache)
    assert options.features is not None
    return _match_features(raw, options.features)


def _is_sample(path: str | Path) -> bool:
    return str(path) in SAMPLES and not os.path.exists(path)


def _file(path: str | Path, part: str) -> Path:
    """The file of DATA; `part` selects "train" or "test" of a sample."""
    if _is_sample(path):
        sample = SAMPLES[str(path)]
        return sample.train if part == "train" else sample.test
    if not is_standard_input(path) and not os.path.exists(path):
        raise DataError(
            f"no such file: {printable(str(path))}; bundled samples are {', '.join(SAMPLES)}"
        )
    return Path(path)


def _match_features(raw: RawSet, features: int) -> RawSet:
    """Remove values of unknown features from sparse rows.

    DataError if dense rows do not have `features` features.

    Sparse rows may have fewer features than the model, because features that are not stored are 0.
    """
    if not len(raw.inputs.indptr):
        if raw.features == features:
            return raw
        relation = "more" if raw.features > features else "fewer"
        raise DataError(
            f"{raw.locate(0)}: {relation} features than the training data: "
            f"{raw.features} here, {features} there"
        )
    unknown = raw.inputs.indices[raw.inputs.indices >= features]
    if not len(unknown):
        return raw
    distinct = len(np.unique(unknown))
    note = (
        f"{_count(len(unknown), 'value')} of {_count(distinct, 'feature')} that the training data "
        f"lack are ignored; the training data have {_count(features, 'feature')} (train with "
        "--features N for more)"
    )
    inputs = csr.below(raw.inputs, features)
    return replace(raw, inputs=inputs, features=features, notes=(*raw.notes, note))


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("s" if number != 1 else "")


def _to_form(inputs: RawInputs, features: int, *, sparse: bool) -> RawInputs:
    """Convert a test set to the dense or sparse form of its training set."""
    if sparse == bool(len(inputs.indptr)):
        return inputs
    return csr.to_csr(inputs) if sparse else csr.to_dense(inputs, features)


def _split(
    rows: int, test_fraction: float, seed: int, classes: NDArray[np.float32] | None
) -> tuple[RowNumbers | None, RowNumbers | None]:
    """The training rows (None: all, in the order of the file) and the test rows, if any."""
    training, testing = split(rows, test_fraction, seed, classes)
    return (training, testing) if len(testing) else (None, None)


def _weights(raw: RawSet, training: RowNumbers | None) -> NDArray[np.float64] | None:
    """The weights of the training rows, if any; DataError if all are 0."""
    if raw.weights is None or training is None:
        return raw.weights
    weights = raw.weights[training]
    if not weights.any():
        raise DataError(f"{raw.source}: every training row has weight 0; use other test rows")
    return weights


def _require_memory_for_copy(inputs: RawInputs) -> None:
    """UsageError if there is no memory for a split and scaled float32 copy of `inputs`."""
    stored = len(inputs.values)
    size = FLOAT32 * inputs.dense.size + inputs.indptr.nbytes + (INT32 + FLOAT32 + SCRATCH) * stored
    require(size, "the scaled rows", "use fewer rows")


def _fingerprint(
    train: Examples,
    test: Examples | None,
    encoding: Encoding,
    weights: NDArray[np.float64] | None,
) -> str:
    digest = hashlib.blake2b(repr((train.features, encoding)).encode(), digest_size=16)
    for examples in (train, test) if test else (train,):
        for array in (*examples.inputs, *examples.labels):
            digest.update(repr((array.dtype.str, array.shape)).encode())
            digest.update(np.ascontiguousarray(array).data)
    if weights is not None:
        digest.update(weights.data)
    return digest.hexdigest()
