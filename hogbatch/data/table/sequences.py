"""Texts as sequences of ids, one for each word or character."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, cast

import numpy as np

from hogbatch.data.order import RowNumbers
from hogbatch.data.schema import Count, expect
from hogbatch.data.table.columns import Column, Kind, TextColumn, strings, taken
from hogbatch.data.table.encoder import Block, StoredByField

PATTERNS: Final = {"words": r"\w+", "characters": "(?s)."}  # of the parts of a text
PADDING, UNKNOWN, FIRST = 0, 1, 2  # ids; those of values begin with the last
MAX_VALUES: Final = 30_000  # the most frequent ones have ids,
MIN_OCCURRENCES: Final = 2  # if they occur so often
LENGTH_FRACTION: Final = 0.99  # of the training rows, which are not longer than a sequence
MAX_LENGTH: Final = 1000  # unless --sequence has another length


@dataclass(frozen=True, slots=True, eq=False)
class SequenceEncoder(StoredByField):
    """A text, in lower case, as T ids of its first words or characters.

    Shorter texts have padding in front: the last step is that of the last word, without lengths.
    """

    kind: ClassVar[Kind] = "sequence"

    unit: Literal["words", "characters"]
    width: Count  # T, the number of features
    values: Sequence[str]  # those with ids, the most frequent one first

    @property
    def stored(self) -> int:
        """The number of stored values per row."""
        return self.width

    @property
    def ids(self) -> int:
        """The number of ids."""
        return FIRST + len(self.values)

    def validate(self, name: str) -> None:
        """ValueError, with `name`, for values that `fit` does not return."""
        whole = self.width > 0 and len({*self.values}) == len(self.values)
        expect(whole, f"{name}: expected a length above 0, and distinct words or characters")

    @classmethod
    def fit(cls, column: Column, rows: RowNumbers, scaling: str) -> "SequenceEncoder":
        """Choose the values that have ids; `scaling` is the setting of --sequence."""
        unit, _, length = scaling.partition(":")
        counts, lengths = Counter[str](), list[int]()
        for parts in _divided(column, rows, unit):
            counts.update(parts)
            lengths.append(len(parts))
        values = [each for each, n in counts.most_common(MAX_VALUES) if n >= MIN_OCCURRENCES]
        usual = int(np.quantile(lengths, LENGTH_FRACTION, method="higher"))
        return cls(cast(Any, unit), int(length or min(max(usual, 1), MAX_LENGTH)), values)

    def encode(self, column: Column, rows: RowNumbers) -> Block:
        """The ids of some rows of a column."""
        known = {value: n for n, value in enumerate(self.values, FIRST)}
        found = np.full((len(rows), self.width), PADDING, np.float32)
        for row, parts in zip(found, _divided(column, rows, self.unit), strict=True):
            ids = [known.get(part, UNKNOWN) for part in parts[: self.width]]
            row[self.width - len(ids) :] = ids
        return Block(np.arange(self.width, dtype=np.int32)[np.newaxis], found)


def _divided(column: Column, rows: RowNumbers, unit: str) -> Iterator[list[str]]:
    """The words, or the characters, of each text."""
    texts = taken(column, rows)
    assert isinstance(texts, TextColumn)
    return map(re.compile(PATTERNS[unit]).findall, strings(texts))
