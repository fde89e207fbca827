from argparse import ArgumentTypeError

import pytest

from hogbatch.cli.parser import whole


def test_a_number_within_its_range_is_accepted_and_another_refused():
    read = whole(1, 64)
    assert read("64") == 64
    for text in ("0", "65", "1.5", "x"):
        expected = f"^expected a whole number from 1 to 64; got '{text}'$"
        with pytest.raises(ArgumentTypeError, match=expected):
            read(text)
