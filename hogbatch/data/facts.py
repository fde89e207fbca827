"""Facts about the data of a run besides the values of its rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.layers import Shape
from hogbatch.config.sets import SetName
from hogbatch.data.encode import Encoding
from hogbatch.data.raw import NO_COLUMNS, Columns
from hogbatch.data.scale import Scaler
from hogbatch.data.sizes import SetSizes
from hogbatch.data.table.encoding import TableEncoding


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
    def label_frequencies(self) -> NDArray[np.int64] | None:
        """The number of training rows that have each label [C]; None unless labels are lists."""
        raise NotImplementedError
