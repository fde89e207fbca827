"""docs/reliability.md names a test for every fault: all of them are there."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
TABLE = TESTS.parent / "docs" / "reliability.md"
HEADER = "| # | fault |"
ROWS = 38


def read_table(text: str) -> dict[int, list[str]]:
    """The tests that each row of the fault table names, by the row's number."""
    rows = {}
    for line in text.partition(HEADER)[2].splitlines():
        if found := re.match(r"\| (\d+) \|", line):
            number, tests = int(found[1]), re.findall(r"`([\w/]+\.py::[\w:]+)`", line)
            assert number not in rows, f"row {number} is there twice"
            rows[number] = tests
    return rows


def names_in(path: Path) -> set[str]:
    """The tests of a file, as pytest names them without parameters."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        for each in inner:
            if isinstance(each, ast.FunctionDef) and each.name.startswith("test_"):
                found.add(prefix + each.name)
    return found


def missing(named: str) -> str:
    """What is wrong with `file::test`, the file as seen from tests/; empty if it is there."""
    file, _, test = named.partition("::")
    path = TESTS / file
    if not path.is_file():
        return f"{named}: there is no file tests/{file}"
    return "" if test in names_in(path) else f"{named}: the file has no such test"


def test_every_fault_has_a_row_in_order():
    assert list(read_table(TABLE.read_text(encoding="utf-8"))) == list(range(1, ROWS + 1))


@pytest.mark.parametrize("row", range(1, ROWS + 1))
def test_every_fault_has_a_test(row):
    named = read_table(TABLE.read_text(encoding="utf-8")).get(row)
    assert named, f"row {row} names no test"
    assert [complaint for each in named if (complaint := missing(each))] == []


@pytest.mark.parametrize(
    ("named", "complaint"),
    [
        ("test_gone.py::test_it", "there is no file"),
        ("test_fault_table.py::test_gone", "no such test"),
        ("test_fault_table.py::read_table", "no such test"),
        ("unit/run/test_rundir.py::test_there_is_always_one_run_or_the_other", "no such test"),
    ],
)
def test_a_test_that_is_not_there_is_found_out(named, complaint):
    assert complaint in missing(named)


def test_a_table_is_read():
    text = "| 2 | usage |\n| # | fault |\n| 1 | a | `x/y.py::test_b`, `z.py::C::test_d` | - |\n"
    assert read_table(text) == {1: ["x/y.py::test_b", "z.py::C::test_d"]}
    with pytest.raises(AssertionError, match="row 1 is there twice"):
        read_table(text + "| 1 | b |")


def test_methods_count_with_their_class():
    found = names_in(TESTS / "unit/run/test_rundir.py")
    assert "TestReplacing::test_a_run_that_has_saved_nothing_does_not_take_its_place" in found
