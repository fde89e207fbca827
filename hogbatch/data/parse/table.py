"""Compiled parser for lines of numbers with delimiters; grammar in `hogbatch.data.csv`."""

import numpy as np

from hogbatch.data.columns import IGNORED, LABEL
from hogbatch.data.parse.decimal import NINE, ONE, ZERO, number
from hogbatch.data.text import FLOAT32_LIMIT
from hogbatch.jit import kernel

TAB, NEWLINE, RETURN, SPACE, QUOTE = b'\t\n\r "'


@kernel
def skip_blanks(text, at, delimiter):
    """Skip blanks around a number."""
    while text[at] == SPACE or (text[at] == TAB and delimiter != TAB):
        at += ONE
    return at


@kernel
def line_end(text, at):
    """The position of the line feed if it is at `at` or after a carriage return; else `at`."""
    return at + np.uint64(text[at] == RETURN and text[at + ONE] == NEWLINE)


@kernel
def cell(text, at, delimiter):
    """Bounds of the number in a cell, and the end of the cell; `at` if anything is unusual."""
    start = skip_blanks(text, at, delimiter)
    low, high, end = number(text, start)
    if end == start or not abs(low) < FLOAT32_LIMIT:
        return low, high, at
    return low, high, line_end(text, skip_blanks(text, end, delimiter))


@kernel
def skip_cell(text, at, delimiter):
    """The end of a cell with any content; a quote also ends it, as it may hide a delimiter."""
    while text[at] != delimiter and text[at] != NEWLINE and text[at] != QUOTE:
        at += ONE
    return at


@kernel
def rows(text, line, delimiter, destinations, out):
    """Parse whole lines; destinations[D] is the feature of each column, or LABEL, or IGNORED.

    Returns the number of rows, or -1 if any line is unusual.
    """
    r, width = 0, destinations.shape[0]
    at, size = np.uint64(0), np.uint64(text.shape[0])
    while at < size:
        end = line_end(text, at)
        if text[end] == NEWLINE:  # a blank line
            line += 1
            at = end + ONE
            continue
        if r == out.lines.shape[0]:
            return -1
        for column in range(width):
            destination = destinations[column]
            last = NEWLINE if column == width - 1 else delimiter
            if (
                ZERO <= text[at] <= NINE and text[at + ONE] == last
            ):  # one digit: the most common case
                low = high = np.float64(np.int64(text[at]) - ZERO)
                end = at + ONE
            elif destination == IGNORED:
                low = high = 0.0
                end = skip_cell(text, at, delimiter)
                if text[end] != last:
                    return -1
            elif text[at] == NEWLINE:
                return -1
            else:
                low, high, end = cell(text, at, delimiter)
                if end == at or text[end] != last:
                    return -1
            if low != high:
                return -1
            if destination >= 0:
                out.dense[r, destination] = low
            elif destination == LABEL:
                out.labels[r] = low
            at = end + ONE
        out.lines[r] = line
        line += 1
        r += 1
    return r
