"""Contents of files against types."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from hogbatch.data.schema import Count, Range, convert, is_indptr, within


class Pair(NamedTuple):
    place: Count
    name: str | None


@dataclass
class Record:
    kind: Literal["a", 1]
    pairs: tuple[Pair, ...]
    share: float = 0.5
    cells: NDArray[np.int32] | None = None


CELLS = np.arange(3, dtype=np.int32)


@pytest.mark.parametrize(
    ("found", "expected", "value"),
    [
        (1, float, 1.0),
        ([1, "a"], Pair, Pair(1, "a")),
        ({"x": [1, 2]}, dict[str, tuple[int, ...]], {"x": (1, 2)}),
        ({"kind": "a", "pairs": [[0, None]]}, Record, Record("a", (Pair(0, None),))),
        ({"kind": 1, "pairs": [], "share": 2}, Record, Record(1, (), 2.0)),
        ({"x": []}, dict[str, Any], {"x": []}),
    ],
)
def test_what_fits_is_converted(found, expected, value):
    assert convert(found, expected, "x") == value
    assert type(convert(found, expected, "x")) is type(value)


def test_an_array_has_one_dimension_and_the_byte_order_of_this_machine():
    assert convert(CELLS, NDArray[np.int32], "x") is CELLS
    assert convert({"kind": 1, "pairs": [], "cells": CELLS}, Record, "x").cells is CELLS
    others = (CELLS[None], CELLS.sum(), CELLS.astype(">i4"), CELLS.astype("i8"), [0, 1, 2], None)
    for other in others:
        with pytest.raises(ValueError, match=r"x: expected int32\[n\]; got"):
            convert(other, NDArray[np.int32], "x")


@pytest.mark.parametrize(
    ("found", "expected", "message"),
    [
        (True, int, "x: expected a whole number; got True"),
        (2**63, int, "x: expected a whole number; got 9223372036854775808"),
        (-1, Count, "x: expected a whole number from 0 to 9223372036854775807; got -1"),
        (9, Annotated[int, Range(1, 8)], "x: expected a whole number from 1 to 8; got 9"),
        (1.0, int | None, "x: expected a whole number or null; got 1.0"),
        (float("nan"), float, "x: expected a finite number; got nan"),
        (float("inf"), float, "x: expected a finite number; got inf"),
        (10**400, float, "x: expected a finite number; got 1000"),
        ("1", float, "x: expected a finite number; got '1'"),
        (1, str, "x: expected text; got 1"),
        (True, Literal["a", 1], "x: expected 'a' or 1; got True"),
        ("ab", tuple[str, ...], "x: expected a list; got 'ab'"),
        ([1], dict[str, int], r"x: expected an object; got \[1\]"),
        ([1], Pair, r"x: expected a list; got \[1\]"),
        ([[0, 1]], tuple[Pair, ...], r"x\[0\].name: expected text or null; got 1"),
        ({"kind": "a"}, Record, r"x: expected the fields kind, pairs, .*; got \['kind'\]"),
        ({"kind": 1, "pairs": [], "y": 0}, Record, "x: expected the fields kind"),
        ({"kind": 1, "pairs": [], "share": None}, Record, "x.share: expected a finite number"),
    ],
)
def test_what_does_not_fit_is_named(found, expected, message):
    with pytest.raises(ValueError, match=message):
        convert(found, expected, "x")


def test_ranges_of_arrays():
    assert within(np.array([-1.0, 2.0]), -1, 2) and within(np.empty(0), 0, 0)
    assert not within(np.array([0.0, np.nan]), -1, 2) and not within(np.array([3]), 0, 2)
    assert is_indptr(np.array([0, 0, 3]), 3) and is_indptr(np.array([1]), 3)
    for wrong in ([], [0, 2, 1], [-1, 3], [0, 4]):
        assert not is_indptr(np.array(wrong, np.int64), 3)
