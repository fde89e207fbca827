"""Reads data sets of Ray."""

from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray

from hogbatch.data.columns import TableForm
from hogbatch.data.table.arrow.columns import indexes_in
from hogbatch.errors import UsageError


def read_dataset(dataset: Any, label: str | None) -> tuple[Any, NDArray[Any]]:
    """The table of a `ray.data.Dataset` without the column `label`, and that column [N].

    By default, the labels are in the last column that is not the index of a data frame. All rows
    are read into this process; Ray computes and moves them. UsageError if there is no such column.
    """
    import pyarrow  # a dependency of ray.data

    blocks = ray.get(dataset.to_arrow_refs())
    table = pyarrow.concat_tables([block for block in blocks if block.num_columns])
    names = tuple(table.column_names)
    name = label or names[TableForm("", names, True, indexes_in(table.schema)).last]
    if name not in table.column_names:
        known = ", ".join(table.column_names)
        raise UsageError(f"label: expected a column of the data set; got {label!r} (has {known})")
    return table.drop_columns([name]), np.asarray(table.column(name))
