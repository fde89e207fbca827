import pytest

from hogbatch.data.skipped import NONE_SKIPPED, LineError, SkippedLines
from hogbatch.errors import DataError


def bad(*lines):
    return SkippedLines.of(lines, lambda line: LineError(line, f"is {line}"))


@pytest.mark.parametrize(("count", "rows", "fraction"), [(0, 0, 0), (1, 99, 0.01), (29, 71, 0.29)])
def test_as_many_as_are_allowed_may_be_left_out(count, rows, fraction):
    bad(*range(count)).check("a.svm", rows, fraction)


@pytest.mark.parametrize(
    ("lines", "rows", "fraction", "message"),
    [
        ((4, 7), 98, 0, "a.svm:4:5: is 4"),
        (
            *((4, 7, 8, 9, 9, 9), 294, 0.01),
            "a.svm: 6 of 300 lines (2.00%) are malformed, more than --bad-lines 0.01 "
            "allows: a.svm:4:5: is 4; a.svm:7:8: is 7; a.svm:8:9: is 8",
        ),
        ((1,), 0, 1, "a.svm: all 1 lines are malformed: a.svm:1:2: is 1"),
    ],
)
def test_too_many_are_one_sentence(lines, rows, fraction, message):
    with pytest.raises(DataError) as caught:
        bad(*lines).check("a.svm", rows, fraction)
    assert str(caught.value) == message


def test_what_is_said_names_each_in_a_line():
    assert NONE_SKIPPED.notes("a.svm", 5) == ()
    first, *others = bad(*range(30)).notes("a.svm", 70)
    assert first == "a.svm: 30 of 100 lines skipped (30.00%); the first 20 are:"
    assert (len(others), others[4]) == (20, "  a.svm:4:5: is 4")
    assert bad(4, 7).notes("a.svm", 98)[0] == "a.svm: 2 of 100 lines skipped (2.00%):"
