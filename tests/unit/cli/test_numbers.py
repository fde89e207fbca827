import pytest

from hogbatch.cli.parser import positive, up_to_one, whole
from hogbatch.errors import UsageError


def test_numbers_within_the_range_are_accepted():
    assert positive("--x", "1e-3") == 0.001
    assert up_to_one("--x", "1") == 1.0
    assert whole("--x", "64", 1, 64) == 64


@pytest.mark.parametrize("given", ["0", "-1", "nan", "inf", "", "one"])
def test_a_number_that_is_not_positive_is_refused(given):
    with pytest.raises(UsageError, match=f"--x: expected a number above 0; got '{given}'"):
        positive("--x", given)


@pytest.mark.parametrize("given", ["0", "65", "1.5", "x"])
def test_a_whole_number_out_of_its_range_is_refused(given):
    with pytest.raises(UsageError, match=f"--x: .* from 1 to 64; got '{given}'"):
        whole("--x", given, 1, 64)


@pytest.mark.parametrize("given", ["0", "1.01", "-0.1", "nan", "x"])
def test_a_number_that_is_not_up_to_one_is_refused(given):
    with pytest.raises(UsageError, match=f"--x: .* at most 1; got '{given}'"):
        up_to_one("--x", given)
