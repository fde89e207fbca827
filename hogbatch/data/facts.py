"""Facts about the data of a run besides the values of its rows."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.layers import Shape
from hogbatch.config.sets import SetName
from hogbatch.data import csr
from hogbatch.data.batch import Examples, RawInputs
from hogbatch.data.encode import Encoding, encode
from hogbatch.data.raw import NO_COLUMNS, Columns, RawSet, ReadOptions
from hogbatch.data.scale import Scaler, scaled
from hogbatch.data.sizes import SetSizes
from hogbatch.data.table.encoding import TableEncoding
from hogbatch.machine.budget import require

INT32 = FLOAT32 = 4  # bytes
SCRATCH = 24  # bytes for each stored value, while sparse rows are copied (see csr.positions)


class Fitted(NamedTuple):
    """How earlier training rows were prepared, so that later rows can be prepared alike."""

    labels: Encoding
    scaler: Scaler | None
    table: TableEncoding | None
    columns: Columns
    index_base: int | None
    features: int  # F

    def options(self, options: ReadOptions) -> ReadOptions:
        """`options` for reading later rows in the same way."""
        return replace(
            options,
            index_base=self.index_base,
            features=self.features,
            columns=self.columns,
            encoding=self.table,
            lists=self.labels.kind == "multilabel",
            declared=None,
            table=None,
        )

    def examples(self, raw: RawSet, *, sparse: bool) -> Examples:
        """Later rows in the form of the training rows, which are `sparse` or not."""
        inputs = csr.to_csr(raw.inputs) if sparse else csr.to_dense(raw.inputs, self.features)
        require_memory_for_copy(inputs)
        return Examples(scaled(inputs, self.scaler), encode(raw, self.labels), self.features)


class Frequencies(NamedTuple):
    """The number of occurrences of each label in training."""

    rows: int  # N
    of_label: NDArray[np.int64]  # [C]: rows that have the label


def require_memory_for_copy(inputs: RawInputs) -> None:
    """UsageError if there is no memory for a split and scaled float32 copy of `inputs`."""
    stored = len(inputs.values)
    size = FLOAT32 * inputs.dense.size + inputs.indptr.nbytes + (INT32 + FLOAT32 + SCRATCH) * stored
    require(size, "the scaled rows", "use fewer rows")


@dataclass(frozen=True, kw_only=True)  # no slots: cached_property needs a __dict__
class DataFacts:
    """The properties of the data that plans, results and checkpoints need.

    The base of `load.LoadedData`, which contains the rows, and of data of servers.
    """

    encoding: Encoding  # of labels
    scaler: Scaler | None  # of features
    index_base: int | None  # number of the first feature in libsvm files
    fingerprint: str  # 32 hex digits, equal for equal data
    skipped: int = 0  # number of skipped lines in the files
    notes: tuple[str, ...] = ()  # messages for the user about the files, one line each
    columns: Columns = NO_COLUMNS  # of the training data if they are CSV
    table: TableEncoding | None = None  # encoding of the columns, if the data are a table
    input_shape: Shape = ()  # (height, width, channels) of a row, for networks with a backbone

    @property
    def train_sizes(self) -> SetSizes:
        """The sizes of the training rows."""
        return self.set_sizes["train"]

    @cached_property
    def set_sizes(self) -> Mapping[SetName, SetSizes]:
        """The sizes of all sets that have rows."""
        raise NotImplementedError

    @cached_property
    def mean_square(self) -> float:
        """Mean over the training rows of the squared norm of their scaled features."""
        raise NotImplementedError

    @cached_property
    def label_frequencies(self) -> Frequencies | None:
        """The number of training rows that have each label; None unless labels are lists."""
        raise NotImplementedError
