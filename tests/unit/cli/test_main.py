import numpy as np
import pytest

from hogbatch.cli import main as cli
from hogbatch.errors import UsageError


def failing(error):
    """A command that raises `error`."""

    def run(arguments):
        raise error

    return run


def test_an_error_is_printed_on_one_line(monkeypatch, capsys):
    error = UsageError("a\x1b[31m" + "x" * 10**6)
    monkeypatch.setitem(cli.COMMANDS, "evaluate", failing(error))
    assert cli.main(["evaluate"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(r"hogbatch: a\x1b[31mxxx")
    assert said.count("\n") == 1 and len(said) < 3000


def test_memory_that_runs_out_is_one_sentence(monkeypatch, capsys):
    with pytest.raises(MemoryError) as caught:
        np.empty(1 << 60, np.uint8)
    for error, why in ((caught.value, "Unable to allocate"), (MemoryError(), "an allocation")):
        monkeypatch.setitem(cli.COMMANDS, "evaluate", failing(error))
        assert cli.main(["evaluate"]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"hogbatch: not enough memory ({why}")
        assert said.count("\n") == 1
