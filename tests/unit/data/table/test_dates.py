from datetime import UTC, datetime

import pytest

from hogbatch.data.table.dates import seconds_of


def seconds(*parts):
    return datetime(*parts, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["2013-01-31", "2014-12-01"], [seconds(2013, 1, 31), seconds(2014, 12, 1)]),
        (["2013-01-31 05:06:07"], [seconds(2013, 1, 31, 5, 6, 7)]),
        (["2013-01-31T05:06:07Z"], [seconds(2013, 1, 31, 5, 6, 7)]),
        (["31.1.2013", "1.12.2014"], [seconds(2013, 1, 31), seconds(2014, 12, 1)]),
        (["1/12/2013", "1/31/2013"], [seconds(2013, 1, 12), seconds(2013, 1, 31)]),
        (["1/12/2013", "31/1/2013"], [seconds(2013, 12, 1), seconds(2013, 1, 31)]),
        (["2013/01/31 05:06"], [seconds(2013, 1, 31, 5, 6)]),
        (["31-Jan-2013"], [seconds(2013, 1, 31)]),
    ],
)
def test_dates_in_usual_forms(values, expected):
    assert seconds_of(values).tolist() == expected


@pytest.mark.parametrize(
    "values",
    [[], ["red"], ["now"], ["NaT"], ["2013-13-01"], ["2013-01-01", "red"], ["12/31"], ["1.2.3.4"]],
)
def test_other_text_is_no_date(values):
    assert seconds_of(values) is None
