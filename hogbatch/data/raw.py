"""A data file as it was read: inputs not yet scaled, labels as the file has them."""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import RawInputs
from hogbatch.data.skipped import NOTHING, Skipped

MAX_INDEX = 2**31 - 2  # indices are int32, and the number of features must fit as well


class LabelLists(NamedTuple):
    """Label indices of N rows in CSR form."""

    indptr: NDArray[np.int64]  # [N + 1]
    indices: NDArray[np.int32]  # [n], ascending within a row, none twice


class Columns(NamedTuple):
    """What is kept of a CSV file's columns, to find them in other files."""

    names: tuple[str, ...] = ()  # [F], of the features in their order; empty without a header
    label: str | None = None  # name of the label column, if it has one
    position: int | None = None  # of the label column in the file, from 0


@dataclass(frozen=True, slots=True)
class Options:
    """What a reader is told beside the path; each format takes what concerns it."""

    label: str | None = None  # label column of a CSV: a name, or a number counted from 0
    index_base: int | None = None  # 0 or 1, where libsvm counts its features from; None: find out
    features: int | None = None  # inputs of the model the rows are for, where there is one
    threads: int | None = None  # that parse text; None: as many as this process may use
    bad_lines: float = 0.0  # share of a text file's lines that may be left out; 0 stops at a first
    header: str = "auto"  # whether a CSV begins with one: yes, no, or auto, by what is in it
    columns: Columns | None = None  # of the training data, to match those of a CSV with
    declared: int | None = None  # features that libsvm data have, also where none has the last ones


DEFAULTS: Final = Options()
NO_COLUMNS: Final = Columns()


@dataclass(frozen=True, slots=True)
class RawSet:
    """N rows of a file. At most one of `labels` and `label_lists` is there."""

    inputs: RawInputs
    features: int  # F
    labels: NDArray[np.float64] | None  # [N], as written in the file
    label_lists: LabelLists | None
    source: str  # path of the file
    classes_hint: int = 0  # number of labels where the file states it, else 0
    index_base: int | None = None  # what features were counted from, where that has a meaning
    lines: NDArray[np.int64] | None = None  # [N], each row's line of a text file, from 1
    skipped: Skipped = NOTHING  # lines of a text file that are not among the rows
    columns: Columns = NO_COLUMNS  # of a CSV file
    notes: tuple[str, ...] = ()  # what was decided that is not obvious, a sentence each

    @property
    def rows(self) -> int:
        """N."""
        return max(len(self.inputs.indptr) - 1, len(self.inputs.dense))

    @property
    def messages(self) -> tuple[str, ...]:
        """What to tell the user of this file, a line each."""
        notes = (f"{self.source}: {note}" for note in self.notes)
        return (*notes, *self.skipped.notes(self.source, self.rows))

    def locate(self, row: int) -> str:
        """Where `row` stands: file:line, or the row number in files that have no lines."""
        if self.lines is None:
            return f"{self.source}: row {row}"
        return f"{self.source}:{self.lines[row]}"
