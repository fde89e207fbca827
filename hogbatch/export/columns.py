"""The encoding of raw rows as the operands of a network's first layer."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.scale import Scaler
from hogbatch.data.table.columns import MISSING, NO_VALUE, CategoryColumn
from hogbatch.data.table.encoders import CYCLES, MAX_VALUES, CategoryEncoder, DateEncoder
from hogbatch.data.table.encoding import TableEncoding
from hogbatch.data.table.numeric import BOUND
from hogbatch.data.table.sequences import FIRST, PADDING, PATTERNS, UNKNOWN, SequenceEncoder
from hogbatch.errors import UsageError
from hogbatch.export.graph import TEXT, Graph
from hogbatch.machine.printable import quoted

Places = NDArray[np.intp]

FORMS: Final = {  # type, width and meaning of inputs by the kind of their columns
    "number": (np.float64, 1, "a number; NaN if missing"),
    "date": (np.float64, 1, "seconds since 1970, without time zone; NaN if missing"),
    "category": (TEXT, 1, "text without blanks around it; empty if missing"),
}
LARGEST: Final = 1e100  # of a number whose square is needed
MISSING_WORDS: Final = sorted(  # in any combination of upper and lower case
    {"".join(each) for word in MISSING for each in product(*zip(word, word.upper(), strict=True))}
)
NO_FEATURES: Final = np.empty(0, np.intp)
NO_CHOICES: Final = np.empty((0, 0), np.intp)


class Operands(NamedTuple):
    """Features of rows in an order that suits the graph, and which they are."""

    dense: str | None = None  # float32[N, K]; None: K = 0
    features: Places = NO_FEATURES  # [K], the number of each column of `dense`
    chosen: str | None = None  # int64[N, S], one of L values of each of S categories; None: S = 0
    choices: Places = NO_CHOICES  # [L, k], the numbers of the features of these values
    values: NDArray[np.float32] = np.empty((0, 0), np.float32)  # [L, k], what the features are


class Block(NamedTuple):
    """Some features of all rows."""

    values: str  # float64[N, K]
    features: Places  # [K]


def add_matrix(graph: Graph, features: int, scaler: Scaler | None) -> Operands:
    """Add an input "X" with all features, and their scaling."""
    values = graph.add_input("X", np.float32, features, "the features, none of them missing")
    if scaler is not None:
        centred = graph.add("Sub", graph.cast(values, np.float64), scaler.mean)
        values = graph.cast(graph.add("Div", centred, scaler.scale), np.float32)
    return Operands(values, np.arange(features))


def add_columns(graph: Graph, table: TableEncoding) -> Operands:
    """Add an input for each column of a table, and the encoding of the columns.

    A table of numbers without names has one input "X" with all columns but the labels. UsageError
    for columns that cannot be exported.
    """
    if table.sequence is not None:
        return _add_sequence(graph, table.columns[0].name, table.sequence)
    columns = [(own, features.start) for own, features in table.features_by_column()]
    if hashed := [
        own.name
        for own, _ in columns
        if own.encoder.kind == "text" or getattr(own.encoder, "hashed", False)
    ]:
        raise UsageError(
            f"the columns {', '.join(map(quoted, hashed))} cannot be exported, because texts, and "
            f"categories with more than {MAX_VALUES:,} values, are hashed; train a model without "
            "them (--drop)"
        )
    categories = [each for each in columns if isinstance(each[0].encoder, CategoryEncoder)]
    numbers = [each for each in columns if each not in categories]
    operands = Operands()
    if not categories and not table.named:
        width, meaning = table.width_without_labels, "the columns but the labels; NaN if missing"
        matrix = graph.add_input("X", np.float64, width, meaning)
        cells = graph.add("Gather", matrix, table.positions_without_labels, axis=1)
    else:
        names = {
            own.position: graph.add_input(own.name, *FORMS[own.encoder.kind]) for own, _ in columns
        }
        found = [names[own.position] for own, _ in numbers]
        cells = graph.add("Concat", *found, axis=1) if found else ""
    if numbers:
        encoders, starts = [own.encoder for own, _ in numbers], np.array([n for _, n in numbers])
        plain = [each.number if isinstance(each, DateEncoder) else each for each in encoders]
        blocks = [*_encoded_numbers(graph, cells, starts, plain)]
        blocks += _encoded_cycles(graph, cells, starts, encoders)
        dense = graph.add("Concat", *(each.values for each in blocks), axis=1)
        features = np.concatenate([each.features for each in blocks])
        operands = Operands(graph.cast(dense, np.float32), features)
    if categories:
        named = [(names[own.position], own.encoder, start) for own, start in categories]
        operands = _with_categories(graph, operands, named)
    return operands


def _add_sequence(graph: Graph, name: str, encoder: SequenceEncoder) -> Operands:
    """Add an input [N, T] of words or characters, and their ids."""
    parts = f"its first {encoder.width} {encoder.unit}, in lower case, with '' in front of fewer"
    meaning = f"a text; in ONNX {parts}"
    cells = graph.add_input(name, TEXT, encoder.width, meaning, PATTERNS[encoder.unit])
    ids = {"": PADDING} | {value: n for n, value in enumerate(encoder.values, FIRST)}
    found = graph.add("LabelEncoder", cells, table=ids, default=UNKNOWN)
    return Operands(graph.cast(found, np.float32), np.arange(encoder.width))


def _encoded_numbers(
    graph: Graph, cells: str, starts: Places, encoders: Sequence[Any]
) -> Iterator[Block]:
    """Encode cells[N, D] like `NumericEncoder`, with the first feature of each column."""

    def of_each(name: str) -> NDArray[Any]:
        return np.array([getattr(encoder, name) for encoder in encoders])

    missing = graph.add("IsNaN", cells)
    filled = graph.add("Where", missing, of_each("fill"), cells)
    scaled, quantiles = filled, [each.quantiles for each in encoders]
    if any(places is not None for places in quantiles):
        fractions, owners = _fractions(graph, filled, quantiles)
        shares = np.zeros((len(owners), len(encoders)))
        shares[np.arange(len(owners)), owners] = 1 / np.bincount(owners)[owners]
        place = graph.add("MatMul", fractions, shares)
        scaled = graph.add("Where", shares.any(axis=0), place, filled)
    scaled = graph.add("Div", graph.add("Sub", scaled, of_each("mean")), of_each("scale"))
    bounded, indicated = of_each("bounded"), of_each("indicator")
    if bounded.any():
        limited = graph.add("Clip", scaled, -LARGEST, LARGEST)
        square = graph.add("Mul", graph.add("Mul", limited, limited), bounded / BOUND**2)
        scaled = graph.add("Div", limited, graph.add("Sqrt", graph.add("Add", square, 1.0)))
    if indicated.any():
        shown = graph.add("And", missing, indicated)
        scaled = graph.add("Where", shown, 0.0, scaled)
        own = np.flatnonzero(indicated)
        marks = graph.cast(graph.add("Gather", shown, own, axis=1), np.float64)
        yield Block(marks, (starts + of_each("width") - 1)[own])
    yield Block(scaled, starts)
    if any(each.edges is not None for each in encoders):
        fractions, owners = _fractions(graph, filled, [each.edges for each in encoders])
        within = np.arange(len(owners)) - np.searchsorted(owners, owners)
        yield Block(fractions, starts[owners] + 1 + within)
    values = [() if each.values is None else each.values for each in encoders]
    if any(counts := [*map(len, values)]):
        owners = np.repeat(np.arange(len(counts)), counts)
        found = graph.add("Gather", cells, owners, axis=1)
        same = graph.cast(graph.add("Equal", found, np.concatenate(values)), np.float64)
        within = np.arange(len(owners)) - np.searchsorted(owners, owners)
        yield Block(same, (starts + of_each("stored") - 1)[owners] + within)


def _fractions(
    graph: Graph, cells: str, places: Sequence[NDArray[np.float64] | None]
) -> tuple[str, Places]:
    """The fraction of each interval that lies below the cell of its column.

    Returns fractions[N, K] and the column [K] of each interval.
    """
    given = [np.empty(1) if own is None else own for own in places]
    owners = np.repeat(np.arange(len(given)), [len(own) - 1 for own in given])
    low, high = np.concatenate([[own[:-1], own[1:]] for own in given], axis=1)
    own = graph.add("Gather", cells, owners, axis=1)
    fractions = graph.add("Div", graph.add("Sub", own, low), high - low)
    return graph.add("Clip", fractions, 0.0, 1.0), owners


def _encoded_cycles(
    graph: Graph, cells: str, starts: Places, encoders: Sequence[Any]
) -> Iterator[Block]:
    """Encode the cycles of dates in cells[N, D] like `DateEncoder`."""
    cycles = [
        (column, 1 / CYCLES[name], shift, start + encoder.number.width + 2 * n + (shift > 0))
        for column, (start, encoder) in enumerate(zip(starts, encoders, strict=True))
        if isinstance(encoder, DateEncoder)
        for n, name in enumerate(encoder.cycles)
        for shift in (0.0, np.pi / 2)  # cos(x) = sin(x + pi / 2)
    ]
    if not cycles:
        return
    columns, speeds, shifts, features = map(np.array, zip(*cycles, strict=True))
    own = graph.add("Gather", cells, columns, axis=1)
    turns = graph.add("Mul", own, speeds)
    part = graph.add("Sub", turns, graph.add("Floor", turns))
    angle = graph.add("Add", graph.add("Mul", part, 2 * np.pi), shifts)
    values = graph.add("Mul", graph.add("Sin", angle), 2**0.5)
    yield Block(graph.add("Where", graph.add("IsNaN", own), 0.0, values), features)


def _with_categories(
    graph: Graph, operands: Operands, categories: Sequence[tuple[str, Any, int]]
) -> Operands:
    """Add categories: the name of each input, its encoder and its first feature."""
    found, blocks, first = list[str](), list[tuple[Places, NDArray[np.float32]]](), 0
    most = max(encoder.stored for _, encoder, _ in categories)
    for name, encoder, start in categories:
        known = [*encoder.values, *encoder.rare, ""]  # "" is never a value, so it is unknown
        codes = np.array([*range(len(known)), NO_VALUE], np.int32)
        block = encoder.encode(CategoryColumn(codes, known), np.arange(len(codes)))
        *chosen, unknown, missing = range(first, first := first + len(codes))
        table = dict(zip(known, chosen, strict=False)) | dict.fromkeys(MISSING_WORDS, missing)
        found.append(graph.add("LabelEncoder", name, table=table, default=unknown))
        unused = ((0, 0), (0, most - encoder.stored))  # features of value 0
        features = block.features.astype(np.intp) + start
        blocks.append((np.pad(features, unused), np.pad(block.values, unused)))
    choices, values = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return operands._replace(
        chosen=graph.add("Concat", *found, axis=1), choices=choices, values=values
    )
