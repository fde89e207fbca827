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


@dataclass(frozen=True, slots=True)
class Options:
    """What a reader is told beside the path; each format takes what concerns it."""

    label: str | None = None  # label column of a CSV: a name, or a number counted from 0
    index_base: int | None = None  # 0 or 1, where libsvm counts its features from; None: find out
    features: int | None = None  # inputs of the model the rows are for, where there is one
    threads: int | None = None  # that parse text; None: as many as this process may use
    bad_lines: float = 0.0  # share of a text file's lines that may be left out; 0 stops at a first


DEFAULTS: Final = Options()


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

    @property
    def rows(self) -> int:
        """N."""
        return max(len(self.inputs.indptr) - 1, len(self.inputs.dense))

    def locate(self, row: int) -> str:
        """Where `row` stands: file:line, or the row number in files that have no lines."""
        if self.lines is None:
            return f"{self.source}: row {row}"
        return f"{self.source}:{self.lines[row]}"
