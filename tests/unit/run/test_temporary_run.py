"""Runs from Python without a run directory: what they print, and that they leave no file."""

import os
import tempfile

import numpy as np
import pytest

import hogbatch
from hogbatch.errors import NoWorkers, UsageError
from hogbatch.run.rundir import temporary_directory
from hogbatch.workers.cpu import CpuEngine

ROWS = 500
X = np.random.default_rng(3).normal(size=(ROWS, 4))
Y = X[:, 0] + X[:, 1]


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """The working directory and that of temporary files."""
    found = tmp_path / "here", tmp_path / "tmp"
    for folder in found:
        folder.mkdir()
    monkeypatch.chdir(found[0])
    monkeypatch.setattr(tempfile, "tempdir", str(found[1]))
    return found


def train(**settings):
    return hogbatch.train(X, Y, **{"hidden": (8,), "epochs": 12} | settings)


def test_nothing_is_written_and_the_run_has_its_results(folders, capsys):
    run = train()
    assert [os.listdir(folder) for folder in folders] == [[], []]
    assert run.run_dir is run.path is run.checkpoint is None
    assert run.metrics["epochs"] == 12 and len(run.metrics_history) > 1
    assert run.model.predict(X).shape == (ROWS,)
    run.save("model.safetensors")
    assert os.listdir(folders[0]) == ["model.safetensors"]
    printed = capsys.readouterr().out
    assert str(folders[1]) not in printed and "directory" not in printed
    *before, last = printed.splitlines()
    assert len(before) < 15, "a file or a pipe gets no line for each evaluation of small data"
    validated, tested = (run.metrics[f"{name}_rmse"] for name in ("validation", "test"))
    assert last.startswith("finished")
    assert f": validation rmse {validated:.4f}; test rmse {tested:.4f}; always predict" in last


def test_nothing_is_printed_unless_that_is_wanted(capfd):
    train(verbose=False)
    assert capfd.readouterr() == ("", "")
    run = train(plain=True, epochs=3)
    lines = capfd.readouterr().out.splitlines()
    assert sum("  epoch " in line for line in lines) == len(run.metrics_history)


@pytest.mark.parametrize(("setting", "value"), [("log", ["csv"]), ("checkpoint_seconds", 5)])
def test_files_that_are_wanted_need_a_directory(setting, value):
    with pytest.raises(
        UsageError, match=f"{setting} needs a directory for its files: give run_dir"
    ):
        train(**{setting: value})


def test_a_model_of_a_run_that_fails_stays(folders, monkeypatch):
    compute = CpuEngine.submit

    def fail(engine, lease):
        if lease.task == "train" and lease.epoch > 2:
            raise RuntimeError("a fault")
        compute(engine, lease)

    monkeypatch.setattr(CpuEngine, "submit", fail)
    with pytest.raises(RuntimeError, match="a fault") as raised:
        train(quiet=True, members=1)
    (kept,) = folders[1].iterdir()
    assert f"{kept}/crash.txt" in raised.value.__notes__[0]


def test_the_directory_stays_only_if_an_error_names_it(folders):
    for error, stays in ((NoWorkers("gone"), False), (NoWorkers("the model is in {}/m"), True)):
        with pytest.raises(NoWorkers), temporary_directory() as path:
            assert path.stat().st_mode & 0o777 == 0o700
            raise NoWorkers(str(error).format(path))
        assert path.exists() == stays


def test_a_temporary_directory_that_cannot_be_created_is_one_sentence(folders):
    folders[1].rmdir()
    with pytest.raises(UsageError, match=r"no temporary directory .*No such file.*give a run dir"):
        train()


def test_large_checkpoints_are_announced(capsys, monkeypatch):
    monkeypatch.setattr("hogbatch.run.checkpoint.snapshots.LARGE_CHECKPOINT", 100)
    train(epochs=1)
    assert "checkpoint" not in capsys.readouterr().out
    train(epochs=1, run_dir="run")
    assert ": only the last one is kept" in capsys.readouterr().out
