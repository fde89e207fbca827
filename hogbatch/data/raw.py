"""The contents of a data file before scaling and label encoding."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.backbone import parse_shape
from hogbatch.config.layers import Shape
from hogbatch.data import csr
from hogbatch.data.batch import RawInputs, count
from hogbatch.data.order import Groups
from hogbatch.data.progress import ReadProgress
from hogbatch.data.skipped import NONE_SKIPPED, SkippedLines
from hogbatch.errors import DataError
from hogbatch.machine.printable import plural

if TYPE_CHECKING:  # the modules of tables import this one, and predictions need no settings
    from hogbatch.config.train import TrainConfig
    from hogbatch.data.table.encoding import TableEncoding
    from hogbatch.data.table.kinds import Inspected, TableOptions

MAX_INDEX = 2**31 - 2  # indices and the number of features must fit into int32
NO_LABEL: Final = np.iinfo(np.int64).min  # in whole-number labels; NaN in others
MAX_WHOLE: Final = 2**53  # whole numbers below it are exact in float64; others are text


LabelNames = tuple[str | bool, ...]  # all of one type


class LabelLists(NamedTuple):
    """Label indices of N rows in CSR form."""

    indptr: NDArray[np.int64]  # [N + 1]
    indices: NDArray[np.int32]  # [n], strictly ascending within a row


class Columns(NamedTuple):
    """Columns of a CSV file, for matching the columns of other files."""

    names: tuple[str, ...] = ()  # [F], in the order of the features; empty without a header
    label: str | None = None  # name of the label column, if known
    position: int | None = None  # of the label column in the file, from 0


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for readers; each format uses those that apply to it."""

    label: tuple[str, ...] = ()  # label columns of a table: names, or numbers from 0
    index_base: int | None = None  # 0 or 1: first feature index of libsvm; None: detect
    features: int | None = None  # inputs of the model, if rows are read for one
    threads: int | None = None  # for parsing text; None: all cores of this process
    bad_lines: float = 0.0  # maximum fraction of malformed lines; 0: fail at the first
    header: str = "auto"  # whether a CSV file has a header: yes, no or auto (detect)
    columns: Columns | None = None  # of the training data, for matching CSV columns
    declared: int | None = None  # number of features of libsvm data (--features)
    table: "TableOptions | None" = None  # of a training table; None: only numbers are read
    encoding: "TableEncoding | None" = None  # of the training table, for later tables
    labels: bool = True  # whether the labels of later rows are read
    lists: bool = False  # libsvm labels are lists, even if most rows have one label
    weight: str | None = None  # column of a table, or array of a .npz file, with weights of rows
    group: str | None = None  # column of a training table; a set contains all rows of a value
    time: str | None = None  # column of a training table; the last rows are held out
    shape: Shape = ()  # (height, width, channels) of a row, to which pictures are resized
    progress: ReadProgress | None = None  # is told how far reading is

    @classmethod
    def of(cls, config: "TrainConfig") -> Self:
        """The options that `config` gives for files which contain only numbers."""
        return cls(
            label=config.label,
            index_base=None if config.index_base == "auto" else int(config.index_base),
            bad_lines=config.bad_lines,
            header=config.header,
            declared=config.features,
            lists=config.loss == "multilabel",
            weight=config.sample_weight,
            group=config.group,
            time=config.time,
            shape=parse_shape(config.input_shape) if config.input_shape else (),
        )


DEFAULTS: Final = ReadOptions()
NO_COLUMNS: Final = Columns()


@dataclass(frozen=True, slots=True)
class RawSet:
    """N rows of a file. At most one of `labels` and `label_lists` is set."""

    inputs: RawInputs
    features: int  # F
    # [N] int64 or float64, as in the file; see `label_names`; [N, T] float64 of several numbers
    labels: NDArray[Any] | None
    label_lists: LabelLists | None
    source: str  # path of the file
    classes_hint: int = 0  # number of labels if stated in the file, else 0
    index_base: int | None = None  # first feature index, for formats that have one
    lines: NDArray[np.int64] | None = None  # [N], line of each row in a text file, from 1
    skipped: SkippedLines = NONE_SKIPPED  # skipped lines of a text file
    columns: Columns = NO_COLUMNS  # of a CSV file
    notes: tuple[str, ...] = ()  # decisions that are not obvious, one sentence each
    weights: NDArray[np.float64] | None = None  # [N], above 0; None: equal
    groups: Groups | None = None  # of the rows of training data, if they are to be split by them
    label_names: LabelNames = ()  # of text or boolean labels; `labels` are then indices into it
    shape: tuple[int, ...] = ()  # of a row, if the file or the caller has them in an array
    table: "Inspected | None" = None  # of a training table, which is encoded after the split
    # returns the location of a row of a table
    locator: Callable[[int], str] | None = field(default=None, compare=False)

    @property
    def rows(self) -> int:
        """N."""
        return count(self.inputs)

    @property
    def messages(self) -> tuple[str, ...]:
        """Messages for the user about this file, one line each."""
        notes = (f"{self.source}: {note}" for note in self.notes)
        return (*notes, *self.skipped.notes(self.source, self.rows))

    def locate(self, row: int) -> str:
        """The location of `row`: file:line, or the row number if the file has no lines."""
        if self.locator is not None:
            return self.locator(row)
        if self.lines is None:
            return f"{self.source}: row {row}"
        return f"{self.source}:{self.lines[row]}"

    def labelled(self) -> "RawSet":
        """The rows with a label, and a note about others, from which nothing can be learned.

        DataError if no row has one.
        """
        if self.labels is None or not (missing := unlabelled(self.labels)).any():
            return self
        rows = np.flatnonzero(~missing)
        if not len(rows):
            raise DataError(f"{self.source}: expected labels; got none in any row")
        left_out = plural(self.rows - len(rows), "row")
        table = self.table
        if table is not None:
            table = table._replace(table=replace(table.table, kept=table.table.numbers(rows)))
        return replace(
            self,
            inputs=csr.rows(self.inputs, rows),
            labels=self.labels[rows],
            lines=None if self.lines is None else self.lines[rows],
            weights=None if self.weights is None else self.weights[rows],
            groups=None if self.groups is None else self.groups.of_rows(rows),
            notes=(*self.notes, f"left out: {left_out} without a label"),
            table=table,
            locator=lambda row: self.locate(int(rows[row])),
        )


def named_labels(values: NDArray[Any]) -> tuple[NDArray[np.float64], LabelNames]:
    """The `labels` and `label_names` of text or boolean values[N]; the names are sorted."""
    names, labels = np.unique(values, return_inverse=True)
    return labels.astype(np.float64), tuple(names.tolist())


def is_missing(cell: Any) -> bool:
    """Whether a cell or a label is None, NaN, NaT or pandas.NA."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(cell, Real | Decimal | np.generic) and bool(cell != cell)


def unlabelled(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each row has no label, or lacks one of several: bool[N]."""
    whole = labels.dtype == np.int64
    cells = labels.reshape(len(labels), -1)
    missing: NDArray[np.bool_] = (cells == NO_LABEL if whole else np.isnan(cells)).any(axis=1)
    return missing


def are_exact(numbers: NDArray[Any]) -> bool:
    """Whether float64 distinguishes whole `numbers`, of any type; NaN counts as exact."""
    low, high = (each.reduce(numbers, axis=None, initial=0) for each in (np.fmin, np.fmax))
    return bool(low > -MAX_WHOLE and high < MAX_WHOLE)
