import json
import os
import tempfile
from pathlib import Path

import pytest

from hogbatch.errors import SaveError, UsageError
from hogbatch.model.file import load_model
from hogbatch.run.results import Run, save_results
from hogbatch.run.rundir import RunDirectory
from tests.unit.model.test_file import model_for, same

SUMMARY = {"status": "finished", "test": None}


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The directory in which temporary directories are created."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.fixture
def directory(tmp_path, temporary):
    with RunDirectory.hold(tmp_path / "run", []) as held:
        held.begin("", resuming=False)
        yield held


def full(*_, **__):
    raise OSError(28, "No space left on device")


def unsaved(directory):
    """The error of saving a model and a summary."""
    with pytest.raises(SaveError) as raised:
        save_results(directory, model_for(), SUMMARY)
    return str(raised.value)


def expect_results(path, model=True):
    assert (path / "model.safetensors").exists() is model
    assert not model or same(load_model(path / "model.safetensors"), model_for())
    assert json.loads((path / "summary.json").read_text()) == SUMMARY


@pytest.mark.parametrize("model", [None, model_for()], ids=["no model", "model"])
def test_model_and_summary_are_in_the_run_directory(directory, temporary, model):
    save_results(directory, None, {"status": "earlier"})
    save_results(directory, model, SUMMARY)
    expect_results(directory.path, model is not None)
    assert os.listdir(temporary) == []


def test_a_directory_that_is_gone_costs_no_model(directory, temporary):
    directory.path.rename(directory.path.with_name("elsewhere"))
    message = unsaved(directory)
    (place,) = temporary.iterdir()
    assert place.stat().st_mode & 0o777 == 0o700
    expect_results(place)
    assert message == (
        f"{directory.path}: cannot save: the run directory was removed, moved or "
        f"replaced; the model is in {place}/model.safetensors instead"
    )


def fail_to_write(monkeypatch, *paths):
    """Let these files not be written."""
    real = os.replace
    monkeypatch.setattr(os, "replace", lambda *names: (full if names[1] in paths else real)(*names))


def test_a_model_that_cannot_be_saved_is_saved_elsewhere(directory, temporary, monkeypatch):
    path = directory.path / "model.safetensors"
    path.write_text("earlier")
    fail_to_write(monkeypatch, path)
    message = unsaved(directory)
    (place,) = temporary.iterdir()
    expect_results(place)
    assert message.startswith(f"{path}: cannot save the model: No space left on device; the earli")
    assert message.endswith(f"; the model is in {place}/model.safetensors instead")
    assert path.read_text() == "earlier"


def test_a_summary_that_cannot_be_saved_leaves_the_model_in_its_place(
    directory, temporary, monkeypatch
):
    fail_to_write(monkeypatch, directory.path / "summary.json")
    message = unsaved(directory)
    (place,) = temporary.iterdir()
    assert os.listdir(place) == ["summary.json"]
    assert same(load_model(directory.path / "model.safetensors"), model_for())
    assert message == (
        f"{directory.path}/summary.json: cannot save the summary: No space left on device; the "
        f"model is in {directory.path}/model.safetensors; the summary is in {place}/summary.json "
        "instead"
    )


def test_results_that_cannot_be_saved_anywhere_are_reported(directory, temporary, monkeypatch):
    monkeypatch.setattr(os, "replace", full)
    assert "; the model cannot be saved elsewhere: " in unsaved(directory)
    monkeypatch.setattr(tempfile, "mkdtemp", full)
    assert "no temporary directory could be created either: No space" in unsaved(directory)


def test_a_run_that_trained_on_no_row_has_no_model(tmp_path):
    run = Run(Path("there"), None, {"status": "stopped", "test": None}, 130)
    assert run.test_loss is None
    for use in (lambda: run.model, lambda: run.save(tmp_path / "model.safetensors")):
        with pytest.raises(UsageError, match=r"there ended before any row .* \(stopped\)"):
            use()
    assert not (tmp_path / "model.safetensors").exists()
