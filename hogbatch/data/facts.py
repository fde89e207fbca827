"""Facts about the data of a run besides the values of its rows."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.layers import Shape
from hogbatch.config.sets import SetName
from hogbatch.data.encode import Encoding
from hogbatch.data.raw import Columns
from hogbatch.data.scale import Scaler
from hogbatch.data.sizes import SetSizes
from hogbatch.data.table.encoding import TableEncoding


class DataFacts(Protocol):
    """The properties of the data that plans, results and checkpoints need.

    Implemented by `load.LoadedData`, which contains the rows, and by data of servers.
    """

    @property
    def train_sizes(self) -> SetSizes:
        """The sizes of the training rows."""

    @property
    def set_sizes(self) -> Mapping[SetName, SetSizes]:
        """The sizes of all sets that have rows."""

    @property
    def mean_square(self) -> float:
        """Mean over the training rows of the squared norm of their scaled features."""

    @property
    def label_frequencies(self) -> NDArray[np.int64] | None:
        """The number of training rows that have each label [C]; None unless labels are lists."""

    @property
    def input_shape(self) -> Shape:
        """The shape of a row, (height, width, channels), for networks with a backbone; else ()."""

    @property
    def fingerprint(self) -> str:
        """32 hex digits, equal for equal data."""

    @property
    def encoding(self) -> Encoding:
        """The encoding of labels."""

    @property
    def scaler(self) -> Scaler | None:
        """The scaling of features."""

    @property
    def table(self) -> TableEncoding | None:
        """The encoding of the columns, if the data are a table."""

    @property
    def index_base(self) -> int | None:
        """The number of the first feature in libsvm files."""

    @property
    def columns(self) -> Columns:
        """The columns of the training data if they are CSV."""
