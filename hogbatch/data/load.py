"""Loading a path or bundled sample as the sets of rows of a run, for kernels."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.layers import Shape
from hogbatch.config.metrics import NUMBERS
from hogbatch.config.sets import SET_NAMES, SetName
from hogbatch.data import log_labels
from hogbatch.data.batch import Examples, Inputs, Labels
from hogbatch.data.cache import DataCache
from hogbatch.data.columns import shown_names
from hogbatch.data.digest import of_arrays
from hogbatch.data.encode import Encoding, comparable, encode, explain, infer_encoding
from hogbatch.data.facts import DataFacts, Fitted, Frequencies, require_memory_for_copy
from hogbatch.data.later import file_of, is_sample, rows_like
from hogbatch.data.order import Fractions, Groups, RowNumbers, split, take
from hogbatch.data.raw import DEFAULTS, RawSet, ReadOptions
from hogbatch.data.readers import read_as
from hogbatch.data.scale import Scaler, fit, scaled
from hogbatch.data.sizes import SetSizes
from hogbatch.data.source import is_standard_input
from hogbatch.data.table.encoding import TableEncoding
from hogbatch.data.table.kinds import ColumnSummary, Inspected
from hogbatch.data.table.means import Values, put_for_training, targets_of, with_means
from hogbatch.data.table.numeric import PIECES
from hogbatch.data.weights import ClassWeights, weighted, weights_of_classes
from hogbatch.errors import DataError, UsageError

# The rows of each set; None: all, in the order of the file.
SplitRows: TypeAlias = Mapping[SetName, RowNumbers | None]

# The shape of a row, (height, width, channels), from its shape in the file.
ShapeOfRows: TypeAlias = Callable[[Shape], Shape]

CONSTANT: Final = "constant in the training rows"

# With so many training rows and predicted numbers, --scale auto of a table is "ple", unless this
# adds more features or more values, 256 MiB.
PIECES_ROWS: Final = 2_000
MAX_PIECES: Final = 512
MAX_PIECE_CELLS: Final = 1 << 26


@dataclass(frozen=True, kw_only=True)
class LoadedData(DataFacts):
    """The sets of rows of a run, and the information for reading later files the same way."""

    sets: Mapping[SetName, Examples]  # those that have rows
    summaries: tuple[ColumnSummary, ...] = ()  # of the columns of this table
    validation_drawn: bool = False  # the validation rows were drawn from DATA, one by one
    in_logs: "LoadedData | None" = None  # with logarithms of labels, if they may be better,
    with_values: "LoadedData | None" = None  # and with features of values of numbers
    values: Mapping[SetName, Values] = field(default_factory=dict)  # of mean labels
    groups: Groups | None = None  # of the training rows

    @property
    def train(self) -> Examples:
        """The training rows."""
        return self.sets["train"]

    def with_sets(self, sets: Mapping[SetName, Examples]) -> "LoadedData":
        """Some of the rows, in memory: `sets` in place of all of them, however encoded."""
        known = {each.name: getattr(self, each.name) for each in fields(LoadedData)}
        return LoadedData(**known | {"sets": sets, "in_logs": None, "with_values": None})

    @cached_property
    def set_sizes(self) -> Mapping[SetName, SetSizes]:
        return {name: examples.sizes for name, examples in self.sets.items()}

    @cached_property
    def mean_square(self) -> float:
        return self.train.mean_square

    @cached_property
    def label_frequencies(self) -> Frequencies | None:
        if self.encoding.kind != "multilabel":
            return None
        counts = np.bincount(self.train.labels.indices, minlength=self.encoding.outputs)
        return Frequencies(self.train.rows, counts)


HeldOut: TypeAlias = Callable[[Fitted], RawSet]  # reads a set like the training rows


def load(
    path: str | Path,
    *,
    files: Mapping[SetName, str | Path] = MappingProxyType({}),
    fractions: Fractions = Fractions(),  # noqa: B008 (immutable)
    options: ReadOptions = DEFAULTS,
    scale: str | Fitted = "auto",
    cache: DataCache | None = None,
    rows: RawSet | None = None,
    **settings: Any,
) -> LoadedData:
    """Read DATA (a path or the name of a sample) and the sets in `files` with `options`.

    A sample has a test file, which is used unless `fractions.test` is 0. Sets that are not in
    files are `fractions` of the rows (none if that is less than one row). With the `scale` of what
    was `Fitted` on earlier data, all files are read and encoded like those. `rows` are a sample of
    DATA that was read before. The other arguments are those of `prepare`. Raises DataError for an
    invalid file.
    """
    named = {"DATA": path, **{f"--{name}": file for name, file in files.items()}}
    if len(piped := [name for name, file in named.items() if is_standard_input(file)]) > 1:
        raise UsageError(
            f"{' and '.join(piped)} are standard input, which can be read only once; give files"
        )
    if "test" not in files and fractions.test and is_sample(path):
        files = {**files, "test": path}
    if isinstance(scale, Fitted):
        raw = rows_like(scale, partial(read_as, file_of(path, "train"), cache=cache), options)
    else:
        rows = rows or read_as(file_of(path, "train"), options, cache)
        raw = with_declared(rows, options.declared)
    if not raw.features and raw.table is None:
        raise DataError(f"{raw.source}: no row has a feature")

    def read(file: str | Path, fitted: Fitted) -> RawSet:
        shape = options.shape or raw.shape
        own = replace(options, group=None, time=None, shape=shape)  # a file is one set
        return rows_like(fitted, partial(read_as, file_of(file, "test"), cache=cache), own)

    held_out = {name: partial(read, file) for name, file in files.items()}
    return prepare(raw, held_out, fractions=fractions, scale=scale, **settings)


def prepare(
    raw: RawSet,
    held_out: Mapping[SetName, HeldOut] = MappingProxyType({}),
    *,
    fractions: Fractions = Fractions(),  # noqa: B008 (immutable)
    loss: str = "auto",
    scale: str | Fitted = "auto",
    seed: int | tuple[int, ...] = 0,
    encoding: Encoding | None = None,
    class_weight: ClassWeights | None = None,
    drop_constant: bool = True,
    linear: bool = False,
    label_transform: str = "none",
    category_means: str = "none",
    number_values: str = "auto",
    shape_of_rows: ShapeOfRows | None = None,
) -> LoadedData:
    """Encode the labels of `raw`, split it, and scale the rows or encode the columns of the table.

    No rows are split off for the sets in `held_out`; errors are those of `load`. Rows are split by
    `order.split` with `seed`; that of a piece is two numbers, and its rows are permuted. An
    `encoding` of the labels is used as it is, and so is what was `Fitted` on earlier rows, by whose
    table `raw` is encoded; for another `scale` see `scale.fit`. With `linear`, "auto" adds no
    features to the numbers of a table, so that the coefficients are those of the numbers.
    `class_weight` multiplies the weights of all rows. For `drop_constant` see `scale.fit` and
    `TableEncoding.fit`. `label_transform` "log1p": the targets are logarithms of the labels;
    "auto": the result contains such rows, too, if they may be better; likewise `number_values`.
    With `category_means` "auto", categories with many values have means of labels, see `means`.
    `shape_of_rows` gives the shape of a row from that in the file; then the channels are scaled.
    """
    shape = () if shape_of_rows is None else shape_of_rows(raw.shape)
    if isinstance(scale, Fitted):
        encoding, columns, base = scale.labels, scale.columns, scale.index_base
        raw = replace(raw, features=scale.features, columns=columns, index_base=base)
    kind, transform = None, label_transform if encoding is None else "none"
    if encoding is None:
        encoding = infer_encoding(raw, loss)
        kind = explain(raw, encoding) if loss == "auto" else None
    labels = encode(raw, encoding)
    classes = labels.values if encoding.kind in ("binary", "classes") else None
    split_off = fractions._replace(**dict.fromkeys(held_out, 0))
    divide = split if isinstance(seed, tuple) else split_rows
    parts: SplitRows = divide(raw.rows, split_off, seed, classes, raw.groups)
    by_group = _about_groups(raw.groups, parts, encoding, classes)
    of_class, training = None, parts["train"]
    if class_weight is not None:
        of_class = weights_of_classes(class_weight, encoding, labels, raw.weights, training)
    labels = weighted(labels, raw.weights, of_class, training)
    known = raw, held_out, parts, encoding, labels, of_class, kind, by_group
    rows = _LabelledRows(*known, shape, loss, transform)
    if raw.table is None:
        return rows.scaled(scale, drop_constant)
    assert isinstance(scale, str)
    cells, count = raw.table.table, raw.rows if training is None else len(training)
    setting = raw.table.sequence or _table_scale(scale, raw.table, encoding, count, linear=linear)
    table = TableEncoding.fit(raw.table, training, setting, drop_constant=drop_constant)
    targets = targets_of(labels, encoding, training) if category_means == "auto" else None
    suits = scale == "auto" and not linear and number_values != "none"
    more = table.with_values(cells, training) if suits else None
    if more is None or number_values == "features":
        return rows.encoded(more or table, targets)
    return replace(rows.encoded(table, targets), with_values=rows.encoded(more, targets))


@dataclass(frozen=True)
class _LabelledRows:
    """The rows of DATA and their encoded labels."""

    raw: RawSet
    held_out: Mapping[SetName, HeldOut]
    parts: SplitRows
    encoding: Encoding
    labels: Labels
    of_class: NDArray[np.float64] | None  # weights
    kind: str | None  # of labels, and
    by_group: str | None  # how rows are split, for the user
    shape: Shape  # of a row, () without a backbone; like the next two, as in `prepare`
    loss: str
    label_transform: str

    def scaled(self, setting: str | Fitted, drop_constant: bool) -> LoadedData:
        """The sets scaled with statistics of the training rows, or of earlier rows."""
        require_memory_for_copy(self.raw.inputs)
        table, note, channels = None, None, self.shape[-1] if self.shape else None
        if isinstance(setting, Fitted):
            scaler, table = setting.scaler, setting.table
        else:
            given = setting, self.raw.inputs, self.raw.features, self.parts["train"]
            scaler, note = fit(*given, drop_constant=drop_constant, channels=channels)
        sets = {name: scaled(self.raw.inputs, scaler, rows) for name, rows in self.parts.items()}
        return self._with_features(sets, scaler, table, note)

    def encoded(self, encoding: TableEncoding, targets: NDArray[np.float64] | None) -> LoadedData:
        """The sets with the columns of the table encoded; `targets`: see `targets_of`."""
        assert self.raw.table is not None
        table, values = encoding.select(self.raw.table.table), dict[SetName, Values]()
        if targets is not None:
            encoding, values = with_means(encoding, table, self.parts, targets)
        sets = {name: encoding.transform(table, rows) for name, rows in self.parts.items()}
        if values:
            put_for_training(encoding, sets["train"], values["train"])
        return self._with_features(sets, None, encoding, values=values)

    def _with_features(
        self,
        inputs: Mapping[SetName, Inputs],
        scaler: Scaler | None,
        table: TableEncoding | None,
        note: str | None = None,
        values: Mapping[SetName, Values] = MappingProxyType({}),
    ) -> LoadedData:
        """The sets with these features, and those that are held out; `note` is for the user."""
        raw, encoding, training = self.raw, self.encoding, self.parts["train"]
        width = raw.features if table is None else table.features
        fitted = Fitted(encoding, scaler, table, raw.columns, raw.index_base, width)
        sets = {
            name: Examples(own, take(self.labels, self.parts[name], encoding.targets), width)
            for name, own in inputs.items()
        }
        others = {name: read(fitted) for name, read in self.held_out.items()}
        for name, other in others.items():
            rows = fitted.examples(other, sparse=sets["train"].sparse)
            weights = weighted(rows.labels, other.weights, self.of_class, None)
            sets[name] = replace(rows, labels=weights)
        sets = {name: sets[name] for name in SET_NAMES if name in sets}
        every = (raw, *others.values())
        messages = (message for each in every for message in each.messages)
        summaries = _summaries(raw, table)
        if unused := [each.name for each in summaries if each.unused == CONSTANT]:
            note = f"not used, {CONSTANT}: {shown_names(unused)}"
        data = LoadedData(
            sets=sets,
            encoding=encoding,
            scaler=scaler,
            index_base=raw.index_base,
            fingerprint=_fingerprint(sets, encoding, table),
            skipped=sum(each.skipped.total for each in every),
            notes=(*messages, *filter(None, [self.kind, note, self.by_group])),
            columns=raw.columns,
            table=table,
            summaries=summaries,
            validation_drawn="validation" in self.parts and raw.groups is None,
            values=values,
            input_shape=(1, width, 1) if raw.table and raw.table.sequence else self.shape,
            groups=None if raw.groups is None else raw.groups.of_rows(training),
        )
        return self._transformed(data, others)

    def _transformed(self, data: LoadedData, others: Mapping[SetName, RawSet]) -> LoadedData:
        """`data` with logarithms of the labels as targets, or with such rows beside its own."""
        known = self.encoding, self.raw, others.values(), self.parts["train"]
        encoding = log_labels.encoding(self.label_transform, self.loss, *known)
        if encoding is None:
            return data
        labels, sets = encode(self.raw, encoding), dict[SetName, Examples]()
        for name, rows in data.sets.items():
            held_out = encode(others[name], encoding) if name in others else None
            values = (held_out or take(labels, self.parts[name], encoding.targets)).values
            sets[name] = replace(rows, labels=rows.labels._replace(values=values))
        fingerprint = _fingerprint(sets, encoding, data.table)
        found = replace(data, sets=sets, encoding=encoding, fingerprint=fingerprint)
        return found if self.label_transform == "log1p" else replace(data, in_logs=found)


def _table_scale(
    setting: str, table: Inspected, encoding: Encoding, rows: int, *, linear: bool
) -> str:
    """The scale of the numbers in a table that "auto" stands for; docs/data.md measures both."""
    if setting != "auto":
        return setting
    pieces = PIECES * sum(kind == "number" for kind in table.kinds.values())
    suits = encoding.kind in NUMBERS and not linear and rows >= PIECES_ROWS
    return "ple" if suits and pieces <= min(MAX_PIECES, MAX_PIECE_CELLS // rows) else "standard"


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


def with_declared(raw: RawSet, features: int | None) -> RawSet:
    """Set the number of features of training data to --features, if given."""
    found = raw.features if raw.table is None else len(raw.table.kinds)
    if features in (None, found):
        return raw
    assert features is not None
    if len(raw.inputs.indptr) and raw.features < features:
        return replace(raw, features=features)
    raise DataError(f"{raw.source} has {found} features; --features is {features}")


def split_rows(
    rows: int,
    fractions: Fractions,
    seed: int | tuple[int, ...],
    classes: NDArray[np.float32] | None = None,
    groups: Groups | None = None,
) -> SplitRows:
    """The rows of each set; if none are held out, the training rows are those of the file."""
    sets = split(rows, fractions, seed, classes, groups)
    return sets if len(sets) > 1 else {"train": None}


def _about_groups(
    groups: Groups | None,
    parts: SplitRows,
    encoding: Encoding,
    classes: NDArray[np.float32] | None,
) -> str | None:
    """A note if no rows are split off by groups, or all rows of some classes are."""
    if groups is None:
        return None
    if (training := parts["train"]) is None:
        return (
            f"{groups.column} does not split the rows: no validation or test rows are taken from "
            "these data"
        )
    if classes is None:
        return None
    rows = np.bincount(classes[training].astype(np.intp), minlength=len(encoding.classes))
    absent = [str(each) for each, own in zip(encoding.classes, rows, strict=True) if not own]
    if not absent:
        return None
    return (
        f"{groups.column}: all rows of some classes are validation or test rows, so the model "
        f"cannot learn these classes: {shown_names(absent)}"
    )


def _fingerprint(
    sets: Mapping[SetName, Examples], encoding: Encoding, table: TableEncoding | None
) -> str:
    arrays = [array for rows in sets.values() for array in (*rows.inputs, *rows.labels)]
    if table is not None:  # rows that were shifted or stretched may be encoded as the same numbers
        arrays += table.arrays().values()
    described = (sets["train"].features, comparable(encoding), [*sets])
    return of_arrays(repr(described), arrays).hexdigest()
