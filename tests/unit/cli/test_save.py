"""`hogbatch train --save -`: the model on standard output."""

import pytest

from hogbatch.cli.main import main
from hogbatch.errors import SaveError
from hogbatch.model.file import load_model
from hogbatch.run import results, training
from hogbatch.run.results import Run
from tests.unit.model.test_file import model_for, same

TRAIN = ("train", "a9a", "--save", "-")


@pytest.fixture
def execute(monkeypatch):
    """Replace the run, which has a model unless `trained` is None, and may fail with `error`."""

    def replace(trained, error=None):
        run = Run(results.Path("runs/one"), trained, {"status": "finished"}, 0, "fast", (3,))

        def instead(*_):
            if error is not None:
                error.run = run
                raise error
            return run

        monkeypatch.setattr(training, "execute", instead)

    return replace


def test_the_model_is_written_to_standard_output(execute, capfdbinary, tmp_path):
    execute(model_for())
    assert main(TRAIN) == 0
    (tmp_path / "model").write_bytes(capfdbinary.readouterr().out)
    assert same(load_model(tmp_path / "model"), model_for())


def test_it_is_written_if_it_cannot_be_saved_anywhere(execute, capfdbinary, tmp_path):
    execute(model_for(), SaveError("the model cannot be saved"))
    assert main(TRAIN) == 5
    out, err = capfdbinary.readouterr()
    (tmp_path / "model").write_bytes(out)
    assert same(load_model(tmp_path / "model"), model_for())
    assert err == b"hogbatch: the model cannot be saved; it was written to standard output\n"


def test_without_a_model_nothing_is_written(execute, capfdbinary):
    execute(None, SaveError("the summary cannot be saved"))
    assert main(TRAIN) == 5
    assert capfdbinary.readouterr() == (b"", b"hogbatch: the summary cannot be saved\n")


def test_a_terminal_is_refused(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(TRAIN) == 2
    assert "redirect standard output to a file or pipe" in capsys.readouterr().err
