"""Compiled parser for lines of labels and index:value pairs; grammar in `hogbatch.data.sparse`."""

import numpy as np

from hogbatch.data.parse.decimal import NINE, ONE, ZERO, number
from hogbatch.data.raw import MAX_INDEX
from hogbatch.data.text import FLOAT32_LIMIT
from hogbatch.jit import kernel

TAB, NEWLINE, RETURN, SPACE, HASH, COMMA, COLON = b"\t\n\r #,:"
QID = tuple(b"qid:")
MAX_DIGITS = np.uint64(10)  # of an index


@kernel
def count(text):
    """The maximum number of rows, labels and values in a text."""
    newlines, commas, colons = 0, 0, 0
    for at in range(text.shape[0]):
        newlines += text[at] == NEWLINE
        commas += text[at] == COMMA
        colons += text[at] == COLON
    return newlines, newlines + commas, colons


@kernel
def is_blank(byte):
    """Whether a byte separates fields."""
    return byte in (SPACE, TAB, RETURN)


@kernel
def ends_field(byte):
    """Whether a byte ends a field."""
    return byte in (SPACE, TAB, RETURN, NEWLINE)


@kernel
def skip(text, at, libsvm):
    """Skip blanks, and in libsvm text query ids and comments."""
    while True:
        while is_blank(text[at]):
            at += ONE
        if libsvm and text[at] == HASH:
            while text[at] != NEWLINE:
                at += ONE
        elif libsvm and text[at] == QID[0]:
            end = query(text, at)
            if end == at:
                return at
            at = end
        else:
            return at


@kernel
def query(text, at):
    """The end of the field qid:N at text[at]; `at` if there is none."""
    end = at
    for byte in QID:
        if text[end] != byte:
            return at
        end += ONE
    digits = end
    while ZERO <= text[end] <= NINE:
        end += ONE
    return end if end > digits and ends_field(text[end]) else at


@kernel
def parse_labels(text, at, m, out):
    """Parse labels separated by commas into out[m:].

    Returns their end, the new number of labels, and whether they are ascending indices. The end is
    `at` if anything is unusual.
    """
    start, listed, previous = at, True, -1.0
    while True:
        low, high, end = number(text, at)
        if end == at or low != high or not abs(low) < FLOAT32_LIMIT:
            return start, m, False
        out[m] = low
        m += 1
        listed &= previous < low <= MAX_INDEX and low == np.floor(low)
        previous = low
        if text[end] != COMMA:
            return end, m, listed
        at = end + ONE
        at += np.uint64(text[at] == SPACE)


@kernel
def has_label(text, at):
    """Whether the first field of a line, at text[at], has labels rather than a feature."""
    while text[at] != COLON and not ends_field(text[at]):
        at += ONE
    return text[at] != COLON


@kernel
def rows(text, line, libsvm, base, out):
    """Parse whole lines into `out`, which has room for `count(text)` rows, labels and values.

    Returns whether all lines are usual, the counts of rows, labels and values, and the fields of a
    `RowSummary`; the latter two are valid only if all lines are usual.
    """
    r, m, n = 0, 0, 0
    lowest, highest, ascending, single, listed = MAX_INDEX, -1, True, True, True
    at, size, usual = np.uint64(0), np.uint64(text.shape[0]), True
    while usual and at < size:
        labels, values, previous = m, n, -1
        at = skip(text, at, libsvm)
        if text[at] != NEWLINE and has_label(text, at):
            stop, m, indices = parse_labels(text, at, m, out.labels)
            usual = stop > at and ends_field(text[stop])
            listed &= indices
            at = stop
        while usual:
            while is_blank(text[at]):
                at += ONE
            index, stop = 0, at
            while ZERO <= text[stop] <= NINE:
                index = index * 10 + (np.int64(text[stop]) - ZERO)
                stop += ONE
            if stop > at:
                usual = text[stop] == COLON and stop - at <= MAX_DIGITS and index <= MAX_INDEX
                if not usual:
                    break
                start = stop + ONE
                low, high, at = number(text, start)
                value = np.float32(low)
                usual = at > start and value == np.float32(high) and abs(low) < FLOAT32_LIMIT
                usual &= ends_field(text[at])
                out.indices[n], out.values[n] = index - base, value
                n += 1
                ascending &= index > previous
                previous = index
                lowest, highest = min(lowest, index), max(highest, index)
            else:
                at = skip(text, at, libsvm)
                if at == stop:
                    break
        usual = usual and text[at] == NEWLINE
        if usual and (m > labels or n > values or not libsvm):
            single &= m - labels == 1
            out.lines[r] = line
            r += 1
            out.label_indptr[r], out.indptr[r] = m, n
        line += 1
        at += ONE
    return usual, (r, m, n), (lowest, highest, ascending, single, listed)
