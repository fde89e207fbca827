"""The encoding of a table: an encoder for each column, in order, and how columns are matched.

It is fitted on the training rows and stored in the model file. The rows of later tables have the
same features, whatever the order of their columns.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data import csr
from hogbatch.data.batch import Inputs, csr_inputs, dense_inputs
from hogbatch.data.columns import TableForm, find_features
from hogbatch.data.order import RowNumbers
from hogbatch.data.raw import are_exact
from hogbatch.data.schema import Count, convert, expect
from hogbatch.data.table.columns import (
    ENCODING,
    MISSING,
    CategoryColumn,
    Kind,
    Table,
    TextColumn,
    varies,
)
from hogbatch.data.table.dates import FORMATS
from hogbatch.data.table.encoder import Arrays
from hogbatch.data.table.encoders import (
    ENCODERS,
    EncodedTogether,
    Encoder,
    TextEncoder,
    encoded_together,
    store,
)
from hogbatch.data.table.kinds import Inspected
from hogbatch.data.table.numeric import NumericEncoder, PlainNumbers
from hogbatch.data.table.sequences import SequenceEncoder
from hogbatch.data.table.typed import UnexpectedCells, typed
from hogbatch.data.table.words import terms
from hogbatch.data.table.written import DECIMALS
from hogbatch.data.text import FLOAT32_LIMIT
from hogbatch.errors import DataError
from hogbatch.machine.budget import require
from hogbatch.machine.threads import on_all_cores

MAX_EMPTY: Final = 4  # dense rows have at most this many features for each stored value
MAX_ADDED: Final = 512  # features of values of numbers, and
MAX_ADDED_CELLS: Final = 1 << 26  # that many in all rows, 256 MiB
ADVICE: Final = "use fewer rows or columns"
FLOAT32 = INT32 = 4  # bytes
BLOCK_ROWS: Final = 1 << 12  # encoded at a time, at least,
BLOCK_VALUES: Final = 1 << 21  # and more, up to as many values


@dataclass(frozen=True, slots=True)
class EncodedColumn:
    """A column of the training table that is used as features."""

    name: str
    position: int  # from 0
    encoder: Encoder
    form: str = ""  # how its text was read, see `Measures`


@dataclass(frozen=True, slots=True)
class LabelColumn:
    """A label column of the training table. Each of several has numbers."""

    name: str
    position: Count
    kind: Kind = "number"  # or category: text; number: also the values true and false
    form: str = ""  # how its text was read, see `Measures`
    words: tuple[str, ...] = ()  # labels that otherwise mean a missing value


@dataclass(frozen=True, slots=True)
class Description:
    """The scalars of an encoding, without those of the encoders."""

    width: Count
    label: Count
    named: bool
    label_name: str
    label_kind: Kind
    kinds: tuple[Kind, ...]  # of the columns that are used
    positions: tuple[Count, ...]  # the same
    forms: tuple[str, ...] = ()  # the same; missing in files of earlier versions,
    label_form: str = ""  # like these
    label_words: tuple[str, ...] = ()
    more_labels: tuple[LabelColumn, ...] = ()  # after the first


class DescribedColumn(NamedTuple):
    """The name of a column that is used, and the scalars of its encoder."""

    name: str
    encoder: dict[str, Any]


@dataclass(frozen=True, eq=False)  # no slots: cached_property needs a __dict__
class TableEncoding:
    """The encoders of all columns that are used, and the form of the training table."""

    columns: tuple[EncodedColumn, ...]
    width: int  # of the training table, with all columns
    labels: tuple[LabelColumn, ...]  # at least one
    named: bool  # whether the training table had names

    @cached_property
    def features(self) -> int:
        """F."""
        return sum(column.encoder.width for column in self.columns)

    @property
    def width_without_labels(self) -> int:
        """The number of columns of a table without the label columns."""
        return self.width - len(self.labels)

    @cached_property
    def positions_without_labels(self) -> NDArray[np.intp]:
        """The position of each column that is used in a table without the label columns."""
        labels = sorted(each.position for each in self.labels)
        positions = np.array([each.position for each in self.columns], np.intp)
        return positions - np.searchsorted(labels, positions)

    def features_by_column(self) -> Iterator[tuple[EncodedColumn, slice]]:
        """The columns that are used, in order, with their features."""
        start = 0
        for column in self.columns:
            yield column, slice(start, start := start + column.encoder.width)

    @cached_property
    def sparse(self) -> bool:
        """Whether rows are in CSR form: always with texts, else if most features are 0."""
        stored = sum(column.encoder.stored for column in self.columns)
        return self.texts or self.features - self._added > MAX_EMPTY * stored

    @property
    def _added(self) -> int:
        """The features of values of numbers, which do not make rows of numbers sparse."""
        numbers = (own.encoder for own in self.columns if isinstance(own.encoder, NumericEncoder))
        return sum(len(each.values) for each in numbers if each.values is not None)

    @property
    def sequence(self) -> SequenceEncoder | None:
        """The encoder of a text as a sequence of ids, which is then the only column."""
        encoder = self.columns[0].encoder
        return encoder if isinstance(encoder, SequenceEncoder) else None

    @cached_property
    def texts(self) -> bool:
        """Whether any column is text."""
        return any(isinstance(each.encoder, TextEncoder) for each in self.columns)

    @classmethod
    def fit(
        cls,
        inspected: Inspected,
        rows: RowNumbers | None,
        scaling: str,
        *,
        drop_constant: bool = True,
    ) -> "TableEncoding":
        """Fit an encoder for each feature on the training `rows` (None: all); texts come last.

        With `drop_constant`, columns with one value in these rows are left out: nothing can be
        learned about other values. DataError if no column is left.
        """
        table, kinds = inspected.table, inspected.kinds
        numbers = np.sort(table.numbers(rows))  # cells in their order in memory
        used = [n for n in kinds if not drop_constant or varies(table.columns[n], numbers)]
        if not used:
            raise DataError(f"{table.source}: all columns are constant in the training rows")
        order = sorted(used, key=lambda position: (kinds[position] == "text", position))
        columns = []
        for position in order:
            column = table.columns[position]
            encoder = ENCODERS[kinds[position]].fit(column, numbers, scaling)
            if not drop_constant and isinstance(encoder, NumericEncoder):
                encoder = encoder.if_it_varies_later()
            columns.append(EncodedColumn(table.names[position], position, encoder, column.form))
        labels = tuple(_label_column(table, position) for position in inspected.labels)
        return cls(tuple(columns), len(table.names), labels, table.named)

    def with_values(self, table: Table, rows: RowNumbers | None) -> "TableEncoding | None":
        """This encoding, with features of values of whole numbers that `rows` repeat often.

        `rows` are the training rows (None: all). None if there are no such numbers, or too many.
        """
        numbers = table.numbers(rows)
        columns = tuple(
            replace(own, encoder=own.encoder.with_values(table.columns[own.position], numbers))
            if isinstance(own.encoder, NumericEncoder)
            else own
            for own in self.columns
        )
        found = replace(self, columns=columns)
        most = min(MAX_ADDED, MAX_ADDED_CELLS // len(numbers))
        return found if 0 < found._added <= most else None

    def match(self, form: TableForm) -> list[int]:
        """The position in a table of each column: by name if both tables have names.

        DataError if a column is missing.
        """
        if self.named and form.named:
            names = tuple(column.name for column in self.columns)
            return find_features(form.names, names, form.source)
        if len(form.names) == self.width:
            return [column.position for column in self.columns]
        if len(form.names) == self.width_without_labels:
            return [*map(int, self.positions_without_labels)]
        raise DataError(
            f"{form.source}: {len(form.names)} columns; expected the {self.width} columns of the "
            "training data, or all but the label column, because one of the tables has no names"
        )

    def adapted(self, table: Table) -> Table:
        """The columns of a later table, numbered from 0, with the kinds of the training table.

        DataError if a column is missing, or has a cell of another kind.
        """
        found, unexpected = self.converted(table)
        for cells in unexpected:
            raise DataError(f"{table.locate(int(cells.rows[0]))}: {cells.complaint}")
        return found

    def converted(self, table: Table) -> tuple[Table, tuple[UnexpectedCells, ...]]:
        """As `adapted`, with the cells of another kind, which are missing values in the result."""
        positions = self.match(table.form)
        forms = {at: own.form for at, own in zip(positions, self.columns, strict=True)}
        table = replace(table, forms=forms)
        columns, unexpected = {}, list[UnexpectedCells]()
        for n, (position, column) in enumerate(zip(positions, self.columns, strict=True)):
            columns[n], cells = typed(table, position, column.encoder.kind)
            unexpected += [] if cells is None else [cells]
        names = tuple(column.name for column in self.columns)
        return replace(table, names=names, columns=columns), tuple(unexpected)

    def select(self, table: Table) -> Table:
        """The columns of the training table itself, numbered from 0."""
        columns = {n: table.columns[column.position] for n, column in enumerate(self.columns)}
        return replace(table, names=tuple(each.name for each in self.columns), columns=columns)

    def transform(self, table: Table, rows: RowNumbers | None = None) -> Inputs:
        """Encode `rows` (None: all), in that order, of a result of `select` or `adapted`."""
        numbers = table.numbers(rows)
        return self._csr(table, numbers) if self.sparse else self._dense(table, numbers)

    @cached_property
    def _together(self) -> tuple[EncodedTogether, ...]:
        return encoded_together(
            (own.encoder, features.start) for own, features in self.features_by_column()
        )

    def transform_matrix(self, matrix: NDArray[Any], source: str) -> Inputs | None:
        """Encode a matrix [N, width_without_labels] of numbers; None if a column at a time must be.

        That is if a column has another encoder than `PlainNumbers`, or a number that it refuses.
        """
        numbers = self._together[0].encoder if len(self._together) == 1 else None
        whole = matrix.dtype.kind in "iu"
        if not isinstance(numbers, PlainNumbers) or self.texts or (whole and not are_exact(matrix)):
            return None
        dense, positions = self._empty(len(matrix), source), self.positions_without_labels
        refused = list[int]()

        def encode(first: int, stop: int) -> None:
            for start in range(first, stop, BLOCK_ROWS):
                part = slice(start, min(start + BLOCK_ROWS, stop))
                cells = matrix[part].take(positions, axis=1).astype(np.float64, copy=False)
                if (np.abs(cells) >= FLOAT32_LIMIT).any():
                    refused.append(start)
                    return
                store(numbers.encode(cells), dense[part])

        on_all_cores(encode, len(matrix), BLOCK_ROWS)
        return None if refused else dense_inputs(dense)

    def _empty(self, rows: int, source: str) -> NDArray[np.float32]:
        """Features of dense rows, all 0."""
        require(FLOAT32 * rows * self.features, f"the rows of {source}", ADVICE)
        return np.zeros((rows, self.features), np.float32)

    def _dense(self, table: Table, rows: RowNumbers) -> Inputs:
        dense = self._empty(len(rows), table.source)
        size, order = _block_rows(table, self.features), np.argsort(rows)
        for start in range(0, len(rows), size):
            places = order[start : start + size]
            block = np.zeros((len(places), self.features), np.float32)
            for each in self._together:
                store(each.encode(table, rows[places]), block)
            dense[places] = block
        return dense_inputs(dense)

    def _csr(self, table: Table, rows: RowNumbers) -> Inputs:
        stored = sum(column.encoder.stored for column in self.columns)
        size = (FLOAT32 + INT32) * len(rows) * stored
        require(size, f"the rows of {table.source}", ADVICE)
        features = np.empty((len(rows), stored), np.int32)
        values = np.empty((len(rows), stored), np.float32)
        for each in self._together:
            features[:, each.stored], values[:, each.stored] = each.encode(table, rows)
        indptr = np.arange(len(rows) + 1) * stored
        plain = csr_inputs(indptr, features.reshape(-1), values.reshape(-1))
        return self._with_texts(plain, table, rows) if self.texts else plain

    def _with_texts(self, plain: Inputs, table: Table, rows: RowNumbers) -> Inputs:
        """Add the words of texts behind the other features of each row."""
        parts = [(csr.rows_of(plain.indptr), plain.indices, plain.values)]
        for n, (own, features) in enumerate(self.features_by_column()):
            if not isinstance(own.encoder, TextEncoder):
                continue
            column, start = table.columns[n], 0
            assert isinstance(column, TextColumn)
            for count, found in terms(column, rows):
                owner, words, values = own.encoder.weigh(found, count)
                parts.append((owner + start, words + np.int32(features.start), values))
                start += count
        owner, indices, values = (np.concatenate(each) for each in zip(*parts, strict=True))
        order = np.argsort(owner, kind="stable")
        indptr = np.searchsorted(owner[order], np.arange(len(rows) + 1))
        return csr_inputs(indptr, indices[order], values[order])

    def description(self) -> dict[str, Any]:
        """The scalars, as JSON."""
        first, *more = self.labels
        used = ((own.encoder.kind, own.position, own.form) for own in self.columns)
        kinds, positions, forms = zip(*used, strict=True)
        table = self.width, first.position, self.named, first.name, first.kind
        label = first.form, first.words, tuple(more)
        return asdict(Description(*table, kinds, positions, forms, *label))

    def arrays(self) -> Arrays:
        """All arrays by name. One is JSON: names and scalars, of which there may be many."""
        described = [[each.name, each.encoder.description()] for each in self.columns]
        text = json.dumps(described, ensure_ascii=False).encode(ENCODING, "surrogatepass")
        arrays: Arrays = {"columns": np.frombuffer(text, np.uint8)}
        for n, each in enumerate(self.columns):
            arrays |= {f"{n}.{name}": array for name, array in each.encoder.arrays().items()}
        return arrays

    @classmethod
    def from_description(cls, description: Any, arrays: Arrays) -> "TableEncoding":
        """The encoding with these scalars and arrays; ValueError if they are not valid."""
        known: Description = convert(description, Description, "table")
        text = convert(arrays.get("columns"), NDArray[np.uint8], "table.columns").tobytes()
        described: tuple[DescribedColumn, ...] = convert(
            json.loads(text.decode(ENCODING, "surrogatepass")),
            tuple[DescribedColumn, ...],
            "table.columns",
        )
        words = known.label_form, known.label_words
        first = LabelColumn(known.label_name, known.label, known.label_kind, *words)
        labels = (first, *known.more_labels)
        used = {*known.positions, *(each.position for each in labels)}
        whole = len(described) == len(known.positions) == len(known.kinds)
        whole = whole and len(used) == len(described) + len(labels)
        expect(whole, "table: expected a position and a kind for each column, and a label")
        expect(max(used) < known.width, f"table: expected positions below {known.width}")
        columns = []
        forms = known.forms or ("",) * len(described)
        expect(len(forms) == len(described), "table: expected a form for each column, or none")
        odd = {*forms, *(each.form for each in labels)} - {"", *DECIMALS, *FORMATS}
        expect(not odd, f"table: expected forms of numbers and dates; got {sorted(odd)}")
        for n, (name, own) in enumerate(described):
            prefix = f"{n}."
            stored = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
            encoder = ENCODERS[known.kinds[n]].from_description(own, stored, f"table.columns[{n}]")
            columns.append(EncodedColumn(name, known.positions[n], encoder, forms[n]))
        return cls(tuple(columns), known.width, labels, known.named)


def _label_column(table: Table, position: int) -> LabelColumn:
    column = table.columns[position]
    texts = column.values if isinstance(column, CategoryColumn) else ()
    words = tuple(text for text in texts if text.lower() in MISSING)
    return LabelColumn(table.names[position], position, column.kind, column.form, words)


def _block_rows(table: Table, features: int) -> int:
    """The rows to encode at a time: more than values of a category, which each block looks up."""
    categories = (each for each in table.columns.values() if isinstance(each, CategoryColumn))
    least = max(BLOCK_ROWS, *(8 * len(each.values) for each in categories), 0)
    return max(least, BLOCK_VALUES // features)
