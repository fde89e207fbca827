import pytest

from hogbatch.errors import DeviceError, HogbatchError
from workers.start import finish


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DeviceError("gpu:0 has failed: it fell off the bus"), 12),
        (HogbatchError("3 merges in a row were not finite"), 1),
    ],
)
def test_a_worker_ends_with_one_sentence_and_the_code_of_its_error(error, code, capsys):
    assert finish(error) == code
    assert capsys.readouterr().err == f"hogbatch worker: {error}\n"


def test_a_bug_ends_with_its_traceback(capsys):
    try:
        raise ZeroDivisionError("a bug")
    except ZeroDivisionError as error:
        assert finish(error) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_worker_that_was_told_to_stop_ends_well(capsys):
    assert finish(None) == 0
    assert capsys.readouterr().err == ""
