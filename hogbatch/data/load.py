"""Loading a path or bundled sample as training and test rows for kernels."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hogbatch.data import csr
from hogbatch.data.batch import Examples, Inputs, RawInputs
from hogbatch.data.cache import DataCache
from hogbatch.data.digest import of_arrays
from hogbatch.data.encode import Encoding, comparable, encode, explain, infer_encoding
from hogbatch.data.order import RowNumbers, split, take
from hogbatch.data.raw import DEFAULTS, NO_COLUMNS, Columns, RawSet, ReadOptions
from hogbatch.data.readers import read_as
from hogbatch.data.samples import SAMPLES
from hogbatch.data.scale import Scaler, fit, scaled
from hogbatch.data.sizes import SetSizes
from hogbatch.data.source import is_standard_input
from hogbatch.data.table.encoding import TableEncoding
from hogbatch.data.table.kinds import ColumnSummary, shown_names
from hogbatch.data.weights import relative_weights
from hogbatch.errors import DataError, UsageError
from hogbatch.machine.budget import require
from hogbatch.machine.printable import plural, printable

SplitRows: TypeAlias = tuple[RowNumbers | None, RowNumbers | None]  # training and test rows

CONSTANT: Final = "constant in the training rows"
INT32 = FLOAT32 = 4  # bytes
SCRATCH = 24  # bytes for each stored value, while sparse rows are copied (see csr.positions)


@dataclass(frozen=True)  # no slots: cached_property needs a __dict__
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
    table: TableEncoding | None = None  # if the training data are a table
    summaries: tuple[ColumnSummary, ...] = ()  # of the columns of this table

    @cached_property
    def train_sizes(self) -> SetSizes:
        """The sizes of the training rows."""
        return self.train.sizes

    @cached_property
    def test_sizes(self) -> SetSizes | None:
        """The sizes of the test rows; None if there are none."""
        return None if self.test is None else self.test.sizes

    @cached_property
    def mean_square(self) -> float:
        """Mean over the training rows of the squared norm of their features."""
        return self.train.mean_square

    @property
    def label_frequencies(self) -> NDArray[np.int64] | None:
        """The number of training rows that have each label [C]; None unless labels are lists."""
        if self.encoding.kind != "multilabel":
            return None
        return np.bincount(self.train.labels.indices, minlength=self.encoding.outputs)


class Features(NamedTuple):
    """The features of the training rows, and of the test rows that are split off."""

    train: Inputs
    test: Inputs | None
    width: int  # F
    scaler: Scaler | None
    table: TableEncoding | None
    note: str | None  # for the user


class Fitted(NamedTuple):
    """How earlier training rows were prepared, so that later rows can be prepared alike."""

    labels: Encoding
    scaler: Scaler | None
    table: TableEncoding | None
    columns: Columns
    index_base: int | None
    features: int  # F


def load(
    path: str | Path,
    *,
    test: str | Path | None = None,
    test_fraction: float = 0.2,
    options: ReadOptions = DEFAULTS,
    loss: str = "auto",
    scale: str | Fitted = "auto",
    seed: int = 0,
    cache: DataCache | None = None,
) -> LoadedData:
    """Read DATA (a path or the name of a sample) and its test set with `options`.

    The test set is `test` if given, else that of the sample, else `test_fraction` of the rows (none
    if that is less than one row), split by `order.split` with `seed`. For `scale` see `scale.fit`;
    with what was `Fitted` on earlier data, all files are read and encoded like those.
    Raises DataError for an invalid file and UsageError for a fraction outside [0, 1).
    """
    expect_test_fraction(test_fraction)
    if test is not None and is_standard_input(path) and is_standard_input(test):
        raise UsageError("DATA and --test are both standard input, which can be read only once")
    if test is None and _is_sample(path):
        test = path
    if isinstance(scale, Fitted):
        raw = _rows_like(scale, path, options, cache)
    else:
        raw = with_declared(read_as(_file(path, "train"), options, cache), options.declared)
    if not raw.features and raw.table is None:
        raise DataError(f"{raw.source}: no row has a feature")

    def test_rows(features: Features) -> RawSet:
        assert test is not None
        alike = options_for_test_file(options, raw.columns, raw.index_base, features.width)
        lists = options.lists or raw.label_lists is not None
        return rows_as(test, replace(alike, encoding=features.table, lists=lists), cache)

    return prepare(
        raw,
        None if test is None else test_rows,
        test_fraction=test_fraction,
        loss=loss,
        scale=scale,
        seed=seed,
    )


def prepare(
    raw: RawSet,
    test: Callable[[Features], RawSet] | None,
    *,
    test_fraction: float = 0.2,
    loss: str = "auto",
    scale: str | Fitted = "auto",
    seed: int = 0,
    encoding: Encoding | None = None,
    drop_constant: bool = True,
) -> LoadedData:
    """Encode the labels of `raw`, split it, and scale the rows or encode the columns of the table.

    `test` returns the rows of a test set with features like those of the training rows; then no
    rows are split off. Arguments and errors are those of `load`. An `encoding` of the labels is
    used as it is, and so is what was `Fitted` on earlier rows, by whose table `raw` is encoded.
    For `drop_constant` see `scale.fit` and `TableEncoding.fit`.
    """
    kind = None
    if isinstance(scale, Fitted):
        encoding = scale.labels
    if encoding is None:
        encoding = infer_encoding(raw, loss)
        kind = explain(raw, encoding) if loss == "auto" else None
    labels = encode(raw, encoding)
    classes = labels.values if encoding.kind in ("binary", "classes") else None
    parts = split_rows(raw.rows, 0 if test is not None else test_fraction, seed, classes)
    training, testing = parts
    labels = labels._replace(weights=relative_weights(raw.weights, training))
    if raw.table is None:
        features = _scale(raw, parts, scale, drop_constant)
    else:
        features = _encode_table(raw, parts, scale, drop_constant)
    train = Examples(features.train, take(labels, training), features.width)
    read, held_out = [raw], None
    if test is not None:
        read.append(other := test(features))
        expect_labels(other, raw.columns)
        held_out = examples_of_test_file(
            other, encoding, features.scaler, features.width, sparse=train.sparse
        )
    elif testing is not None:
        assert features.test is not None
        held_out = Examples(features.test, take(labels, testing), features.width)
    messages = (message for each in read for message in each.messages)
    summaries = _summaries(raw, features.table)
    if unused := [each.name for each in summaries if each.unused == CONSTANT]:
        features = features._replace(note=f"not used, {CONSTANT}: {shown_names(unused)}")
    return LoadedData(
        train,
        held_out,
        encoding,
        features.scaler,
        raw.index_base,
        _fingerprint(train, held_out, encoding, features.table),
        skipped=sum(each.skipped.total for each in read),
        notes=(*messages, *filter(None, [kind, features.note])),
        columns=raw.columns,
        table=features.table,
        summaries=summaries,
    )


def _scale(raw: RawSet, parts: SplitRows, setting: str | Fitted, drop_constant: bool) -> Features:
    """Scale features with statistics of the training rows, or of earlier rows."""
    training, testing = parts
    require_memory_for_copy(raw.inputs)
    table, note = None, None
    if isinstance(setting, Fitted):
        scaler, table = setting.scaler, setting.table
    else:
        scaler, note = fit(setting, raw.inputs, raw.features, training, drop_constant=drop_constant)
    train = scaled(raw.inputs, scaler, training)
    test = None if testing is None else scaled(raw.inputs, scaler, testing)
    return Features(train, test, raw.features, scaler, table, note)


def _encode_table(
    raw: RawSet, parts: SplitRows, setting: str | Fitted, drop_constant: bool
) -> Features:
    """Encode the columns of a table, fitted on the training rows."""
    assert raw.table is not None and raw.columns.position is not None
    assert isinstance(setting, str)
    training, testing = parts
    encoding = TableEncoding.fit(
        raw.table, raw.columns.position, training, setting, drop_constant=drop_constant
    )
    table = encoding.select(raw.table.table)
    test = None if testing is None else encoding.transform(table, testing)
    train = encoding.transform(table, training)
    return Features(train, test, encoding.features, None, encoding, None)


def _summaries(raw: RawSet, encoding: TableEncoding | None) -> tuple[ColumnSummary, ...]:
    """The summaries of the columns of a table, with those that `encoding` does not use."""
    if raw.table is None or encoding is None:
        return ()
    used = {column.position for column in encoding.columns}
    return tuple(
        each._replace(kind=None, unused=CONSTANT)
        if position in raw.table.kinds and position not in used
        else each
        for position, each in enumerate(raw.table.summaries)
    )


def expect_test_fraction(fraction: float) -> None:
    """UsageError for a fraction outside [0, 1)."""
    if not 0 <= fraction < 1:
        raise UsageError(f"test fraction must be at least 0 and below 1; got {fraction}")


def expect_labels(raw: RawSet, columns: Columns) -> None:
    """DataError if a file lacks the named label column of the training file."""
    if columns.label is not None and raw.labels is None and raw.label_lists is None:
        raise DataError(
            f"{raw.source} has no labels: expected the label column {columns.label!r} of the "
            "training data; if it has a different name, give it with --label"
        )


def options_for_test_file(
    options: ReadOptions, columns: Columns, index_base: int | None, features: int
) -> ReadOptions:
    """Options for reading the test file of training rows that were read with `options`."""
    return replace(
        options,
        label=options.label if columns.position is None else None,  # else `columns` contains it
        index_base=index_base,
        features=features,
        columns=columns,
        declared=None,
        table=None,
    )


def examples_of_test_file(
    raw: RawSet, encoding: Encoding, scaler: Scaler | None, features: int, *, sparse: bool
) -> Examples:
    """The rows of a test file, in the form of the training rows with F = `features`."""
    inputs = _to_form(raw.inputs, features, sparse=sparse)
    require_memory_for_copy(inputs)
    labels = encode(raw, encoding)._replace(weights=relative_weights(raw.weights, None))
    return Examples(scaled(inputs, scaler), labels, features)


def with_declared(raw: RawSet, features: int | None) -> RawSet:
    """Set the number of features of training data to --features, if given."""
    found = raw.features if raw.table is None else len(raw.table.kinds)
    if features in (None, found):
        return raw
    assert features is not None
    if len(raw.inputs.indptr) and raw.features < features:
        return replace(raw, features=features)
    raise DataError(f"{raw.source} has {found} features; --features is {features}")


def _rows_like(
    fitted: Fitted, path: str | Path, options: ReadOptions, cache: DataCache | None
) -> RawSet:
    """Read training rows like those on which a model was fitted."""
    columns, lists = fitted.columns, fitted.labels.kind == "multilabel"
    alike = options_for_test_file(options, columns, fitted.index_base, fitted.features)
    alike = replace(alike, encoding=fitted.table, lists=lists)
    raw = rows_as(path, alike, cache, part="train")
    expect_labels(raw, columns)
    return replace(raw, features=fitted.features, columns=columns, index_base=fitted.index_base)


def rows_as(
    path: str | Path, options: ReadOptions, cache: DataCache | None, part: str = "test"
) -> RawSet:
    """Read rows for a model of `options.features` inputs: checked and not yet scaled.

    The columns of a CSV file are matched to `options.columns`, and those of a table to its
    encoding. The name of a sample means its file `part`.
    """
    raw = read_as(_file(path, part), options, cache)
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
        f"{plural(len(unknown), 'value')} of {plural(distinct, 'feature')} that the training data "
        f"lack are ignored; the training data have {plural(features, 'feature')} (train with "
        "--features N for more)"
    )
    inputs = csr.below(raw.inputs, features)
    return replace(raw, inputs=inputs, features=features, notes=(*raw.notes, note))


def _to_form(inputs: RawInputs, features: int, *, sparse: bool) -> RawInputs:
    """Convert a test set to the dense or sparse form of its training set."""
    if sparse == bool(len(inputs.indptr)):
        return inputs
    return csr.to_csr(inputs) if sparse else csr.to_dense(inputs, features)


def split_rows(
    rows: int,
    test_fraction: float,
    seed: int | tuple[int, ...],
    classes: NDArray[np.float32] | None = None,
) -> SplitRows:
    """The training rows (None: all, in the order of the file) and the test rows, if any."""
    training, testing = split(rows, test_fraction, seed, classes)
    return (training, testing) if len(testing) else (None, None)


def require_memory_for_copy(inputs: RawInputs) -> None:
    """UsageError if there is no memory for a split and scaled float32 copy of `inputs`."""
    stored = len(inputs.values)
    size = FLOAT32 * inputs.dense.size + inputs.indptr.nbytes + (INT32 + FLOAT32 + SCRATCH) * stored
    require(size, "the scaled rows", "use fewer rows")


def _fingerprint(
    train: Examples, test: Examples | None, encoding: Encoding, table: TableEncoding | None
) -> str:
    sets = (train, test) if test else (train,)
    arrays: list[NDArray[Any]] = []
    for examples in sets:
        values, indptr, indices, weights = examples.labels
        arrays += [*examples.inputs, values, indptr, indices]
        if len(weights):  # rows without them have the fingerprint that versions before gave them
            arrays.append(weights)
    if table is not None:  # rows that were shifted or stretched may be encoded as the same numbers
        arrays += table.arrays().values()
    return of_arrays(repr((train.features, comparable(encoding))), arrays).hexdigest()
