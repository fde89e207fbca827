import argparse

import pytest

from benchmarks.common import arguments


def test_names_are_checked_and_repeated_ones_dropped():
    read = arguments.names(["iris", "wine"])
    assert read("wine,iris,wine") == ["wine", "iris"]
    with pytest.raises(argparse.ArgumentTypeError, match="names from iris, wine; got mnist"):
        read("iris,mnist")


@pytest.mark.parametrize("none", ["", "none"])
def test_no_names_are_selected_only_where_that_makes_sense(none):
    assert arguments.names(["iris"], none)(none) == []
    with pytest.raises(argparse.ArgumentTypeError):
        arguments.names(["iris"])(none)


def test_numbers_are_finite_and_above_zero():
    assert arguments.positive(int)("7") == 7
    assert arguments.positive(float)("0.5") == 0.5
    for wrong in ("0", "-1", "nan", "inf", "x"):
        with pytest.raises(argparse.ArgumentTypeError, match=f"above 0; got '{wrong}'"):
            arguments.positive(float)(wrong)


def test_a_gpu_is_a_number_or_the_host():
    assert [arguments.gpu_or_host(text) for text in ("0", "host")] == ["0", "host"]
    with pytest.raises(argparse.ArgumentTypeError, match="got 'cpu'"):
        arguments.gpu_or_host("cpu")
