"""Mean labels of categories (`means`) among the features of a table's rows."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.sets import SetName
from hogbatch.data.batch import Inputs
from hogbatch.data.order import RowNumbers
from hogbatch.data.table.columns import Table
from hogbatch.data.table.encoders import CategoryEncoder
from hogbatch.data.table.encoding import TableEncoding
from hogbatch.data.table.means import Floats, means_of_other_rows, shrunk_means


class Values(NamedTuple):
    """The values of some rows of the K categories that have mean labels."""

    places: NDArray[np.intp]  # [N, K], see `CategoryEncoder`
    targets: Floats  # [N, C], whose means are features

    def joined(self, rows: NDArray[np.bool_], more: "Values") -> "Values":
        """The values of some rows, and behind them all of `more`."""
        places = np.concatenate([self.places[rows], more.places])
        return Values(places, np.concatenate([self.targets[rows], more.targets]))


class MeanLabels(NamedTuple):
    """The mean labels among the features of rows, to compute them for other training rows."""

    counts: tuple[int, ...]  # [K], the places of each category
    features: tuple[slice, ...]  # [K], where their means are in dense rows
    stored: tuple[int, ...]  # [K], where they begin among the stored values of sparse rows

    @classmethod
    def of(cls, encoding: TableEncoding) -> Self:
        """Those of the features of `encoding`."""
        counts, places, stored, before = list[int](), list[slice](), list[int](), 0
        for own, features in encoding.features_by_column():
            if isinstance(own.encoder, CategoryEncoder) and own.encoder.labels:
                counts.append(own.encoder.places)
                places.append(slice(features.stop - own.encoder.labels, features.stop))
                stored.append(before + 1)
            before += own.encoder.stored
        return cls(tuple(counts), tuple(places), tuple(stored))

    def put_for_training(self, inputs: Inputs, values: Values) -> None:
        """Give training rows the means of other training rows."""
        for k, count in enumerate(self.counts):
            self._put(inputs, k, means_of_other_rows(values.places[:, k], values.targets, count))

    def put_for_others(self, inputs: Inputs, places: NDArray[np.intp], training: Values) -> None:
        """Give rows with these `places` the means of all training rows."""
        for k, count in enumerate(self.counts):
            means = shrunk_means(training.places[:, k], training.targets, count)
            self._put(inputs, k, means[places[:, k]])

    def _put(self, inputs: Inputs, k: int, means: NDArray[np.float32]) -> None:
        if len(inputs.indptr):
            places = self.stored[k] + np.arange(means.shape[1])
            inputs.values[inputs.indptr[:-1, np.newaxis] + places] = means
        else:
            inputs.dense[:, self.features[k]] = means


def with_means(
    encoding: TableEncoding,
    table: Table,
    parts: Mapping[SetName, RowNumbers | None],
    targets: Floats,
) -> tuple[TableEncoding, dict[SetName, Values]]:
    """`encoding` with means of `targets` [N, C] for categories with many values.

    `table`, a result of `TableEncoding.select`, has N rows, of which `parts` are the sets. Returns
    the values of the rows of each set, too; none if no category has many values.
    """
    columns = list(encoding.columns)
    many = {
        n: own.encoder
        for n, own in enumerate(columns)
        if isinstance(own.encoder, CategoryEncoder) and own.encoder.has_many
    }
    if not many:
        return encoding, {}
    values = dict[SetName, Values]()
    for name, rows in parts.items():
        numbers = table.numbers(rows)
        places = [each.places_of(table.columns[n], numbers) for n, each in many.items()]
        values[name] = Values(np.stack(places, axis=1), targets if rows is None else targets[rows])
    training = values["train"]
    for k, (n, encoder) in enumerate(many.items()):
        means = shrunk_means(training.places[:, k], training.targets, encoder.places)
        columns[n] = replace(columns[n], encoder=replace(encoder, means=means.reshape(-1)))
    return replace(encoding, columns=tuple(columns)), values
