from argparse import ArgumentTypeError

import pytest

from hogbatch.cli.parser import positive, up_to_one, whole


@pytest.mark.parametrize(
    ("read", "expected", "refused"),
    [
        (positive, "a number above 0", ["0", "-1", "nan", "inf", "", "one"]),
        (up_to_one, "a number above 0, at most 1", ["0", "1.01", "-0.1", "nan", "x"]),
        (whole(1, 64), "a whole number from 1 to 64", ["0", "65", "1.5", "x"]),
    ],
)
def test_a_number_within_its_range_is_accepted_and_another_refused(read, expected, refused):
    assert (positive("1e-3"), up_to_one("1"), whole(1, 64)("64")) == (0.001, 1.0, 64)
    for text in refused:
        with pytest.raises(ArgumentTypeError, match=f"^expected {expected}; got '{text}'$"):
            read(text)
