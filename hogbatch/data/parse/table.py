"""Lines of numbers between delimiters: see `hogbatch.data.csv` for the grammar."""

import numpy as np

from hogbatch.data.parse.decimal import NINE, ONE, ZERO, number
from hogbatch.data.text import FLOAT32_LIMIT
from hogbatch.jit import kernel

TAB, NEWLINE, RETURN, SPACE = b"\t\n\r "


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
def rows(text, line, delimiter, label, out):
    """Read whole lines; the label stands in column `label`, or nowhere if that is -1.

    Returns how many rows there are, or -1 if any line is unusual.
    """
    r, width = 0, out.dense.shape[1] + (label >= 0)
    at, size = np.uint64(0), np.uint64(text.shape[0])
    while at < size:
        end = line_end(text, at)
        if text[end] == NEWLINE:  # a blank line
            line += 1
            at = end + ONE
            continue
        if r == out.lines.shape[0]:
            return -1
        f = 0
        for column in range(width):
            last = NEWLINE if column == width - 1 else delimiter
            if ZERO <= text[at] <= NINE and text[at + ONE] == last:  # one digit: most common
                low = high = np.float64(np.int64(text[at]) - ZERO)
                end = at + ONE
            elif text[at] == NEWLINE:
                return -1
            else:
                low, high, end = cell(text, at, delimiter)
                if end == at or text[end] != last:
                    return -1
            if low != high:
                return -1
            if column == label:
                out.labels[r] = low
            else:
                out.dense[r, f] = low
                f += 1
            at = end + ONE
        out.lines[r] = line
        line += 1
        r += 1
    return r
