"""The split into training, validation and test rows, and the row order of each epoch."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.sets import SetName
from hogbatch.data import csr
from hogbatch.data.batch import Labels
from hogbatch.errors import DataError

RowNumbers = NDArray[np.int64]

MIN_VALIDATION_ROWS: Final = 50
FEW_ROWS: Final = 10_000


class Fractions(NamedTuple):
    """The fractions of the rows that are held out; at least 0 and below 1."""

    test: float = 0.2
    validation: float | None = 0.0  # of the rest; None: by `validation_rows`


class Window(NamedTuple):
    """How rows on disk are shuffled: by blocks, then within windows of whole blocks."""

    block: int  # rows that follow one another on disk
    rows: int  # of a window
    bytes: int  # of these rows, about


class Groups(NamedTuple):
    """Groups of rows; all rows of a group are in the same set."""

    numbers: RowNumbers  # [N], the group of each row, from 0
    column: str  # in messages
    ordered: bool = False  # groups are times: the last ones are held out

    def of_rows(self, rows: RowNumbers | None) -> "Groups":
        """The groups of `rows`, or of all."""
        return self if rows is None else self._replace(numbers=self.numbers[rows])


def validation_rows(rows: int) -> int:
    """The default number of validation rows out of `rows` rows: a tenth, or a fifth of few.

    It is at least MIN_VALIDATION_ROWS, since the loss on few is noisy, but at most half of them.
    """
    fraction = 0.2 if rows < FEW_ROWS else 0.1
    return min(max(int(rows * fraction), MIN_VALIDATION_ROWS), rows // 2)


def split(
    rows: int,
    fractions: Fractions,
    seed: int | tuple[int, ...] = 0,
    classes: NDArray[np.float32] | None = None,
    groups: Groups | None = None,
) -> dict[SetName, RowNumbers]:
    """Permute `rows` with `seed`, and use the last ones for testing, those before for validation.

    With `classes`[rows], numbered from 0, the split is stratified: each class contributes its
    fraction of the rows that are held out, rounded up or down to keep the sum, and keeps at least
    one training row. If too few classes can be rounded up, fewer rows are held out. With `groups`,
    whole groups are held out, and classes do not matter. The result has no empty sets besides the
    training rows. DataError for too few groups.
    """
    random = np.random.default_rng(seed)
    order = random.permutation(rows)
    by_group = None
    if groups is not None:
        sequence = np.arange(groups.numbers.max(initial=-1) + 1)
        by_group = groups, sequence if groups.ordered else random.permutation(sequence)
    order, testing = _hold_out(order, int(rows * fractions.test), classes, by_group)
    rest = len(order)
    if fractions.validation is None:
        validating = validation_rows(rest)
    else:
        validating = int(rest * fractions.validation)
    order, validation = _hold_out(order, validating, classes, by_group)
    sets: dict[SetName, RowNumbers] = {"train": order, "validation": validation, "test": testing}
    return {name: own for name, own in sets.items() if name == "train" or len(own)}


def fold_numbers(
    rows: int, folds: int, seed: int, classes: NDArray[np.float32] | None = None
) -> RowNumbers:
    """Divide `rows` into `folds` of equal size: the number of each row's fold, int64[rows].

    With `classes`[rows], numbered from 0, each fold has as many rows of a class, at most one more.
    """
    # The spawn key makes it independent of the split and of the epochs, which have one number.
    random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0, 0)))
    order = random.permutation(rows)
    if classes is not None:
        order = order[np.argsort(classes[order], kind="stable")]
    numbers = np.empty(rows, np.int64)
    numbers[order] = np.arange(rows) % folds
    return numbers


def _hold_out(
    order: RowNumbers,
    count: int,
    classes: NDArray[np.float32] | None,
    by_group: tuple[Groups, RowNumbers] | None,
) -> tuple[RowNumbers, RowNumbers]:
    """Divide the rows `order` into all but the last `count`, and those, as `split` does.

    With groups, the last ones of their sequence are held out.
    """
    rows = len(order)
    if by_group is not None and count:
        groups, sequence = by_group
        held_out = np.isin(groups.numbers[order], _last_groups(groups, order, count, sequence))
        return order[~held_out], order[held_out]
    if classes is None:
        return order[: rows - count], order[rows - count :]
    own = classes[order].astype(np.int64)
    by_class = np.argsort(own, kind="stable")
    sizes = np.bincount(own)
    ends = np.cumsum(sizes)
    from_end = np.empty(rows, np.int64)  # number of rows of the same class from this row to the end
    from_end[by_class] = np.repeat(ends, sizes) - np.arange(rows)
    chosen = from_end <= _counts(sizes, count, own)[own]
    return order[~chosen], order[chosen]


def _last_groups(groups: Groups, order: RowNumbers, count: int, sequence: RowNumbers) -> RowNumbers:
    """The last groups of the `sequence`, with nearly `count` of the rows `order`, at least one.

    Random groups of more than 2 `count` rows, without which the number of rows would be closer to
    `count`, come first.
    """
    sizes = np.bincount(groups.numbers[order], minlength=len(sequence))
    sequence = sequence[sizes[sequence] > 0]
    if not groups.ordered:
        sequence = sequence[np.argsort(sizes[sequence] <= 2 * count, kind="stable")]
    ends = np.cumsum(sizes[sequence])[:-1]
    if not len(ends):
        raise DataError(
            f"{groups.column}: expected different values in the training, validation and test "
            f"rows; got {len(np.unique(groups.numbers))} in all rows: use another column, or hold "
            "out fewer sets with --test-fraction 0 or --validation-fraction 0"
        )
    return sequence[1 + np.argmin(np.abs(ends - (len(order) - count))) :]


def _counts(sizes: RowNumbers, held_out: int, own: RowNumbers) -> RowNumbers:
    """The rows of each class that are held out, of `sizes` rows per class; `held_out` in total.

    Among equal remainders, the class that occurs first in `own`, the classes in random order, is
    rounded up first.
    """
    rows = max(int(sizes.sum()), 1)
    counts, remainders = np.divmod(sizes * held_out, rows)
    first = np.full(len(sizes), rows)
    np.minimum.at(first, own, np.arange(len(own)))
    up = np.lexsort((first, -remainders))
    up = up[(remainders[up] > 0) & (counts[up] + 1 < sizes[up])]
    counts[up[: held_out - int(counts.sum())]] += 1
    return counts


def epoch_order(
    rows: int, seed: int, epoch: int, last: Sequence[int] = (), window: Window | None = None
) -> RowNumbers:
    """The row order of one epoch; it depends only on the arguments.

    With a `window`, the blocks of rows are permuted, and then the rows of each window of blocks.
    The rows `last` come after all others.
    """
    # The spawn key makes epoch 0 of seed 0 independent of the generator of the split.
    random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(epoch,)))
    order = random.permutation(rows) if window is None else _in_windows(rows, window, random)
    if not last:
        return order
    behind = np.isin(order, last)
    return np.concatenate([order[~behind], order[behind]])


def _in_windows(rows: int, window: Window, random: np.random.Generator) -> RowNumbers:
    size = window.block
    firsts = random.permutation(-(-rows // size)) * size
    blocks = [np.arange(first, min(first + size, rows)) for first in firsts]
    order = np.concatenate(blocks)
    for start in range(0, rows, window.rows):
        random.shuffle(order[start : start + window.rows])
    return order


def order_of_parts(parts: Iterable[tuple[int, int]], seed: int, epoch: int) -> RowNumbers:
    """The row order of one epoch of `parts` (number, rows), each permuted within itself: int64[N].

    The order within a part depends only on its number, its rows, `seed` and `epoch`, so it is the
    same on all servers that have the part, whichever other parts they have.
    """
    orders, start = [np.empty(0, np.int64)], 0
    for number, rows in parts:
        random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(epoch, number)))
        orders.append(random.permutation(rows) + start)
        start += rows
    return np.concatenate(orders)


def take(labels: Labels, rows: RowNumbers | None, targets: int = 1) -> Labels:
    """Copy the labels of `rows`, in that order; None: all of them, not copied.

    `targets`: the numbers of a row, as in `Labels.values`.
    """
    if rows is None:
        return labels
    weights = labels.weights[rows] if len(labels.weights) else labels.weights
    if not len(labels.indptr):
        values = labels.values.reshape(-1, targets)[rows].reshape(-1)
        return labels._replace(values=values, weights=weights)
    indptr, positions = csr.positions(labels.indptr, rows)
    return Labels(labels.values, indptr, labels.indices[positions], weights)
