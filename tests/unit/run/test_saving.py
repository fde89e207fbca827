import json
import os
import tempfile

import pytest

from hogbatch.errors import SaveError
from hogbatch.model.file import load_model
from hogbatch.run import saving
from hogbatch.run.rundir import RunDirectory
from hogbatch.run.saving import MAX_ATTEMPTS, other_places, save_results
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


@pytest.fixture
def pauses(monkeypatch):
    """The pauses between attempts, which take no time."""
    found = []
    monkeypatch.setattr(saving.time, "sleep", found.append)
    return found


def full(*_, **__):
    raise OSError(28, "No space left on device")


def save(directory, model=None, places=(None,), summary=SUMMARY):
    """Save the results; return what was said."""
    said = []
    save_results(directory, model, lambda: summary, places, said.append)
    return said


def unsaved(directory, places=(None,)):
    """The error of saving a model and a summary."""
    with pytest.raises(SaveError) as raised:
        save(directory, model_for(), places)
    return str(raised.value)


def expect_results(path, model=True):
    assert (path / "model.safetensors").exists() is model
    assert not model or same(load_model(path / "model.safetensors"), model_for())
    assert json.loads((path / "summary.json").read_text()) == SUMMARY


@pytest.mark.parametrize("model", [None, model_for()], ids=["no model", "model"])
def test_model_and_summary_are_in_the_run_directory(directory, temporary, model):
    save(directory, summary={"status": "earlier"})
    assert save(directory, model) == []
    expect_results(directory.path, model is not None)
    assert os.listdir(temporary) == []


def test_a_directory_that_is_gone_costs_no_model(directory, temporary):
    moved = directory.path.rename(directory.path.with_name("elsewhere"))
    directory.path.mkdir()
    message = unsaved(directory)
    (place,) = temporary.iterdir()
    assert place.stat().st_mode & 0o777 == 0o700
    expect_results(place)
    assert message == (
        f"{directory.path}: cannot save: the run directory was removed, moved or "
        f"replaced; the model is in {place}/model.safetensors instead"
    )
    assert (moved / "elsewhere").readlink() == place and os.listdir(directory.path) == []


def fail_to_write(monkeypatch, *paths):
    """Let these files, and those in these directories, not be written."""
    real = os.replace

    def replace(source, target):
        return (full if {target, *target.parents} & set(paths) else real)(source, target)

    monkeypatch.setattr(os, "replace", replace)


def test_a_model_that_cannot_be_saved_is_saved_elsewhere(directory, temporary, monkeypatch):
    path = directory.path / "model.safetensors"
    path.write_text("earlier")
    fail_to_write(monkeypatch, path)
    message = unsaved(directory)
    (place,) = temporary.iterdir()
    expect_results(place)
    assert (directory.path / "elsewhere").readlink() == place
    assert message.startswith(f"{path}: cannot save the model: No space left on device; the earli")
    assert message.endswith(f"; the model is in {place}/model.safetensors instead")
    assert path.read_text() == "earlier"
    directory.begin("", resuming=True)
    assert not (directory.path / "elsewhere").is_symlink(), "that was the run before"


def test_a_model_is_saved_in_the_first_place_that_can_take_it(
    directory, temporary, tmp_path, monkeypatch
):
    home, folder = tmp_path / "home", tmp_path / "data"
    monkeypatch.setenv("HOME", str(home))
    folder.mkdir()
    fail_to_write(monkeypatch, directory.path, temporary)
    unsaved(directory, other_places(str(folder / "rows.svm")))
    (place,) = folder.iterdir()
    expect_results(place)
    assert os.listdir(temporary) == [], "nothing incomplete is left"


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
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(SaveError, match="the summary cannot be saved elsewhere: "):
        save(directory)


def test_saving_is_tried_again_until_there_is_space(directory, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        patch.setattr(tempfile, "mkdtemp", full)

        def sleep(seconds):
            patch.undo()

        patch.setattr(saving.time, "sleep", sleep)
        (said,) = save(directory, model_for(), (None, "/home"))
    expect_results(directory.path)
    assert (
        "; the model cannot be saved elsewhere: no temporary directory: No space left on device; "
        "/home: No space left on device; free some disk space: saving is tried again every 5 s for "
        "10 minutes, or until Ctrl-C"
    ) in said


def test_saving_is_tried_again_for_some_time_or_until_ctrl_c(directory, pauses, monkeypatch):
    monkeypatch.setattr(os, "replace", full)
    assert "; the model cannot be saved elsewhere: " in unsaved(directory)
    assert len(pauses) == MAX_ATTEMPTS - 1

    def interrupt(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(saving.time, "sleep", interrupt)
    assert "; the model cannot be saved elsewhere: " in unsaved(directory)
