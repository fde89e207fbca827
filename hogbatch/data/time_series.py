"""Time series in .ts files, the format of aeon and sktime.

    @classLabel true a b     tags, such as @targetLabel true for numbers, and comments (# or %)
    @data
    1.5,2,3:4,5,6:a          a row: each value at all steps, and the label

A row has the shape (steps, values). Shorter sequences begin with zeros.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.arrays import FEWER, rows_of
from hogbatch.data.raw import RawSet, ReadOptions
from hogbatch.data.source import Source
from hogbatch.data.text import blocks
from hogbatch.errors import DataError
from hogbatch.machine import budget
from hogbatch.machine.printable import plural


def read(source: Source, options: ReadOptions) -> RawSet:
    """Read a .ts file; later sequences have as many steps as those of training, the last ones.

    DataError names the first line with a number that is missing.
    """
    tags, lines = dict[str, bool](), list[int]()
    sequences, labels = list[NDArray[np.float64]](), list[str | float]()
    for number, line in _lines(source):
        if "@data" not in tags:
            tag, *value = line.lower().split()
            tags[tag] = value[:1] == ["true"]
            continue
        values, numeric = line.split(":"), tags.get("@targetlabel", False)
        try:
            if numeric or tags.get("@classlabel", True):
                label = values.pop().strip()
                labels.append(float(label) if numeric else label)
            sequence = np.array([each.split(",") for each in values], np.float64)
            lines.append(number)
            sequences.append(sequence)
            if len(sequence) != len(sequences[0]) or not np.isfinite(sequence).all():
                raise ValueError
        except ValueError:
            raise DataError(
                f"{source}:{number}: expected as many values as in the first row, numbers at the "
                "same steps, and the label; remove time stamps, and rows with missing numbers"
            ) from None
    if not lines or not len(sequences[0]):
        raise DataError(f"{source}: expected sequences of numbers after a line @data; got none")
    inputs = options.features if options.encoding is None else options.encoding.width_without_labels
    longest, width = max(each.shape[1] for each in sequences), len(sequences[0])
    steps = (inputs or 0) // width or longest
    budget.require(8 * len(lines) * steps * width, f"the sequences of {source}", FEWER)
    rows = np.zeros((len(lines), steps, width))
    for row, sequence in zip(rows, sequences, strict=True):
        row[max(steps - sequence.shape[1], 0) :] = sequence[:, -steps:].T
    raw = rows_of({"X": rows} | ({"y": np.array(labels)} if labels else {}), source, options)
    cut = sum(each.shape[1] > steps for each in sequences)
    note = f"the last {steps} steps of {plural(cut, 'longer sequence')} are used, as in the model"
    return replace(raw, lines=np.array(lines), notes=(*raw.notes, note) if cut else raw.notes)


def _lines(source: Source) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not empty or comments, with their numbers."""
    for block in blocks(source):
        for number, line in enumerate(block.text.splitlines(), block.first_line):
            text = line.decode("utf-8", "replace").strip()
            if text and text[0] not in "#%":
                yield number, text
