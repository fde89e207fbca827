import pytest

from hogbatch.data.skipped import NONE_SKIPPED, LineError, MalformedLine, SkippedLines
from hogbatch.errors import DataError


def bad(*lines):
    return SkippedLines.of(lines, lambda line: LineError(line, f"is {line}"))


def test_lines_are_counted_and_the_first_twenty_named():
    skipped = bad(*range(1, 31))
    assert (skipped.total, len(skipped.first)) == (30, 20)
    assert skipped.first[0].describe("a.svm") == "a.svm:1:2: is 1"
    assert MalformedLine(3, None, "why").describe("pipe") == "pipe:3: why"


def test_parts_come_together_in_the_order_of_lines():
    whole = SkippedLines.of_parts([bad(5, 9), NONE_SKIPPED, bad(2, *range(10, 40))])
    assert whole.total == 33
    assert [mistake.line for mistake in whole.first] == [2, 5, 9, *range(10, 27)]
    assert SkippedLines.of_parts([]) == NONE_SKIPPED


@pytest.mark.parametrize(("count", "rows", "fraction"), [(0, 0, 0), (1, 99, 0.01), (29, 71, 0.29)])
def test_as_many_as_are_allowed_may_be_left_out(count, rows, fraction):
    bad(*range(count)).check("a.svm", rows, fraction)


def test_the_first_mistake_is_the_error_where_none_is_allowed():
    with pytest.raises(DataError, match=r"^a\.svm:4:5: is 4$"):
        bad(4, 7).check("a.svm", 98, 0)


def test_too_many_are_one_sentence_with_count_share_and_the_first():
    with pytest.raises(DataError) as caught:
        bad(4, 7, 8, 9, 9, 9).check("a.svm", 294, 0.01)
    assert str(caught.value) == (
        "a.svm: 6 of 300 lines (2.00%) are malformed, more than --bad-lines 0.01 "
        "allows: a.svm:4:5: is 4; a.svm:7:8: is 7; a.svm:8:9: is 8"
    )


def test_nothing_left_is_an_error_whatever_is_allowed():
    with pytest.raises(DataError, match=r"^a\.svm: all 2 lines are malformed: a\.svm:1"):
        bad(1, 2).check("a.svm", 0, 1)


def test_what_is_said_names_each_in_a_line():
    assert NONE_SKIPPED.notes("a.svm", 5) == ()
    assert bad(4, 7).notes("a.svm", 98) == (
        "a.svm: 2 of 100 lines skipped (2.00%):",
        "  a.svm:4:5: is 4",
        "  a.svm:7:8: is 7",
    )
    notes = bad(*range(30)).notes("a.svm", 70)
    assert notes[0] == "a.svm: 30 of 100 lines skipped (30.00%); the first 20 are:"
    assert len(notes) == 21
