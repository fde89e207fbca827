"""CSV and TSV: one row a line, all cells numbers, one column the label.

A first line with text in it is a header. The label column is the last one unless `label` names it
or gives its number from 0. Cells may be quoted; every cell must be a finite number.
"""

import csv
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import dense_inputs
from hogbatch.data.raw import Options, RawSet
from hogbatch.data.text import Block, blocks, number, plain_numbers
from hogbatch.errors import DataError

SHOWN_NAMES = 20


class Table(NamedTuple):
    """What the first line of a file tells."""

    source: Path
    delimiter: str
    width: int  # columns, D
    names: tuple[str, ...]  # [D], or empty without a header
    line: int  # where it stands


class Part(NamedTuple):
    """The rows of one block."""

    lines: NDArray[np.int64]  # [N]
    dense: NDArray[np.float32]  # [N, F]
    labels: NDArray[np.float64]  # [N]; without a label column, whatever is in column 0


def read(path: Path, options: Options) -> RawSet:
    """Read a CSV file into dense rows.

    A file with just as many columns as the model has inputs (`options.features`) has no labels,
    unless a column bears the name `options.label`.
    """
    stream = blocks(path)
    table, rest = _begin(path, next(stream, Block(1, b"")))
    column = _label_column(table, options)
    parts = [_part(block, table, column) for block in chain([rest], stream)]
    lines, dense, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    if not len(lines):
        raise DataError(f"{path} has a header and no rows")
    return RawSet(
        inputs=dense_inputs(dense),
        features=dense.shape[1],
        labels=None if column is None else labels,
        label_lists=None,
        source=str(path),
        lines=lines,
    )


def _begin(path: Path, block: Block) -> tuple[Table, Block]:
    """Learn the table's form from its first line; the block comes back without a header."""
    text = block.text.lstrip(b"\r\n")
    if not text.strip():
        raise DataError(f"{path} is empty: expected a line of comma-separated numbers")
    line = block.first_line + block.text[: len(block.text) - len(text)].count(b"\n")
    first, _, rest = text.partition(b"\n")
    content = first.decode("utf-8", "replace")
    tabs = ".tsv" in path.name.lower() or ("\t" in content and "," not in content)
    delimiter = "\t" if tabs else ","
    try:
        cells = _cells(content, delimiter)
    except csv.Error as error:
        raise DataError(f"{path}:{line}: {error}") from None
    if all(_numeric(cell) for cell in cells):
        return Table(path, delimiter, len(cells), (), line), Block(line, text)
    return Table(path, delimiter, len(cells), tuple(cells), line), Block(line + 1, rest)


def _numeric(cell: str) -> bool:
    """Whether a cell of the first line is data: a number, also a bad one, or nothing."""
    try:
        float(cell or "nan")
    except ValueError:
        return False
    return True


def _label_column(table: Table, options: Options) -> int | None:
    label = options.label
    if label is not None and label in table.names:
        column = table.names.index(label)
    elif options.features == table.width:
        return None
    elif label is None:
        column = table.width - 1
    elif label.isascii() and label.isdigit() and int(label) < table.width:
        column = int(label)
    else:
        raise DataError(f"{table.source} has no label column {label!r}: {_columns(table)}")
    if table.width < 2:
        raise DataError(
            f"{table.source}:{table.line}: expected features and a label, separated by commas or "
            "tabs; got one column"
        )
    return column


def _columns(table: Table) -> str:
    if not table.names:
        return f"its {table.width} columns have no names; give a number from 0 to {table.width - 1}"
    more = ", ..." if table.width > SHOWN_NAMES else ""
    return f"its {table.width} columns are {', '.join(table.names[:SHOWN_NAMES])}{more}"


def _part(block: Block, table: Table, column: int | None) -> Part:
    tidy = Block(block.first_line, block.text.replace(b"\r\n", b"\n").replace(b", ", b","))
    numbers = parse_plain(tidy, table)
    lines = np.arange(block.first_line, block.first_line + block.text.count(b"\n"))
    if numbers is None:
        lines, numbers = parse_lines(tidy, table)
    features = numbers if column is None else np.delete(numbers, column, axis=1)
    return Part(lines, features.astype(np.float32), numbers[:, column or 0].copy())


def parse_plain(block: Block, table: Table) -> NDArray[np.float64] | None:
    """Read a block at once into numbers[N, D], or return None when anything in it is unusual."""
    delimiter = table.delimiter.encode()
    numbers = plain_numbers(block.text, delimiter + b"\n")
    if numbers is None:
        return None
    text = np.frombuffer(b"\n" + block.text, np.uint8)
    breaks = (text == ord("\n")) | (text == ord(delimiter))
    newlines = np.flatnonzero(text[breaks] == ord("\n"))  # counted in cells, empty ones too
    if (np.diff(newlines) != table.width).any() or len(numbers) != newlines[-1]:
        return None
    return numbers.reshape(-1, table.width)


def parse_lines(block: Block, table: Table) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Read a block line by line into lines[N] and numbers[N, D]; blank lines are no rows.

    DataError names the line and column of the first mistake.
    """
    lines, rows = [], []
    for line, content in enumerate(block.text.split(b"\n")[:-1], block.first_line):
        if content.strip(b"\r"):
            try:
                rows.append(_row(content.decode("utf-8", "replace"), table))
            except (ValueError, csv.Error) as error:
                raise DataError(f"{table.source}:{line}: {error}") from None
            lines.append(line)
    numbers = np.array(rows, np.float64).reshape(-1, table.width)
    return np.array(lines, np.int64), numbers


def _row(content: str, table: Table) -> list[float]:
    cells = _cells(content, table.delimiter)
    if len(cells) != table.width:
        raise ValueError(f"{len(cells)} columns; expected {table.width} as in line {table.line}")
    return [_number(cell, column, table) for column, cell in enumerate(cells)]


def _number(cell: str, column: int, table: Table) -> float:
    try:
        return number(cell)
    except ValueError as error:
        name = f" ({table.names[column]})" if table.names else ""
        raise ValueError(f"column {column}{name}: {error}") from None


def _cells(content: str, delimiter: str) -> list[str]:
    """Split a line; only one with quotes needs the care of the standard library."""
    quotes = '"' in content
    cells = next(csv.reader([content], delimiter=delimiter)) if quotes else content.split(delimiter)
    return [cell.strip() for cell in cells]
