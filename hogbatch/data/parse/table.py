"""Lines of numbers between delimiters: see `hogbatch.data.csv` for the grammar."""

import numpy as np

from hogbatch.data.columns import IGNORED, LABEL
from hogbatch.data.parse.decimal import NINE, ONE, ZERO, number
from hogbatch.data.text import FLOAT32_LIMIT
from hogbatch.jit import kernel

TAB, NEWLINE, RETURN, SPACE, QUOTE = b'\t\n\r "'


@kernel
def skip_blanks(text, at, delimiter):
    """Skip what may stand around a number."""
    while text[at] == SPACE or (text[at] == TAB and delimiter != TAB):
        at += ONE
    return at


@kernel
def line_end(text, at):
    """Where the line feed is, if at most a carriage return comes before it; else `at`."""
    return at + np.uint64(text[at] == RETURN and text[at + ONE] == NEWLINE)


@kernel
def cell(text, at, delimiter):
    """Bounds of the number in a cell, and where the cell ends: at `at` if anything is unusual."""
    start = skip_blanks(text, at, delimiter)
    low, high, end = number(text, start)
    if end == start or not abs(low) < FLOAT32_LIMIT:
        return low, high, at
    return low, high, line_end(text, skip_blanks(text, end, delimiter))


@kernel
def skip_cell(text, at, delimiter):
    """Where a cell of any content ends; a quote ends it too, for it may hide a delimiter."""
    while text[at] != delimiter and text[at] != NEWLINE and text[at] != QUOTE:
        at += ONE
    return at


@kernel
def rows(text, line, delimiter, places, out):
    """Read whole lines; places[D] says which feature each column is, or that it is none.

    Returns how many rows there are, or -1 if any line is unusual.
    """
    r, width = 0, places.shape[0]
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
            place = places[column]
            last = NEWLINE if column == width - 1 else delimiter
            if ZERO <= text[at] <= NINE and text[at + ONE] == last:  # one digit: most common
                low = high = np.float64(np.int64(text[at]) - ZERO)
                end = at + ONE
            elif place == IGNORED:
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
            if place >= 0:
                out.dense[r, place] = low
            elif place == LABEL:
                out.labels[r] = low
            at = end + ONE
        out.lines[r] = line
        line += 1
        r += 1
    return r
