from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from hogbatch.errors import DataError, UsageError
from hogbatch.events.records import Evaluation, WorkerRecord
from hogbatch.run.checkpoint import folder
from hogbatch.run.resume import (
    FOLDER,
    expect_checkpoints,
    find_resume_point,
    resumed_dir,
    settings_file,
)
from tests.unit.run.checkpoint.test_snapshots import SAVED

EVALUATION = Evaluation(1.5, 2.0, 180, 0.4, 0.5, {"accuracy": 0.75})
IDENTITY = {"network": "5-4-1 relu", "seed": 0}


def write(run_dir, epoch=2, **changes):
    worker = WorkerRecord("cpu-0", "cpu", 2, 180, 18, 1.0, 0.9, 10, [(0.0, 10)], [])
    state = {**asdict(SAVED), "epoch": epoch, "workers": [asdict(worker)]}
    description = {
        "state": state,
        "history": [asdict(EVALUATION)],
        "kept": asdict(EVALUATION),
        "identity": IDENTITY,
        **changes,
    }
    return folder.write(run_dir / FOLDER, {"params": np.zeros(3, np.float32)}, description)


def damage(path):
    with (path / "manifest.json").open("a") as file:
        file.write("x")


def test_the_saved_state_is_read_back(tmp_path):
    write(tmp_path)
    point = find_resume_point("auto", tmp_path)
    assert (point.saved.epoch, point.saved.todo) == (2, SAVED.todo)
    assert point.saved.todo[0].deaths == 1
    assert point.saved.workers[0].batch_trace == [(0.0, 10)]
    assert point.history == [EVALUATION] and point.kept == EVALUATION
    assert point.unusable == []


def test_the_newest_usable_checkpoint_is_chosen_and_the_others_are_named(tmp_path):
    write(tmp_path, epoch=1)
    damage(write(tmp_path, epoch=2))
    point = find_resume_point("auto", tmp_path)
    assert point.saved.epoch == 1
    assert len(point.unusable) == 1 and "000002" in point.unusable[0]


def test_a_named_checkpoint_is_read_or_refused(tmp_path):
    first, second = write(tmp_path, epoch=1), write(tmp_path, epoch=2)
    assert find_resume_point(str(first), tmp_path).saved.epoch == 1
    damage(first)
    with pytest.raises(DataError, match="000001"):
        find_resume_point(str(first), tmp_path)
    assert find_resume_point(str(second), tmp_path).saved.epoch == 2


def test_every_unusable_checkpoint_is_named(tmp_path):
    damage(write(tmp_path))
    damage(write(tmp_path))
    with pytest.raises(DataError, match=r"no checkpoint .* is usable: .*000002.*; .*000001"):
        find_resume_point("auto", tmp_path)


def test_auto_needs_no_checkpoint_but_a_named_run_does(tmp_path):
    assert find_resume_point("auto", tmp_path) is None
    with pytest.raises(DataError, match="there is no checkpoint in"):
        find_resume_point(str(tmp_path), tmp_path)


@pytest.mark.parametrize(("name", "what"), [("nowhere", "does not exist"), ("f", "is not a dir")])
@pytest.mark.parametrize("rest", ["", "/checkpoints", "/checkpoints/000001"])
def test_a_path_that_is_not_a_directory_is_named(tmp_path, name, what, rest):
    (tmp_path / "f").touch()
    path = f"{tmp_path / name}{rest}"
    what = "does not exist" if rest else what
    for use in (expect_checkpoints, lambda path: settings_file({"resume": path})):
        with pytest.raises(DataError, match=f"--resume {path} {what}.*; expected a run directory"):
            use(path)


def test_a_named_run_directory_must_contain_checkpoints(tmp_path):
    with pytest.raises(DataError, match=f"there is no checkpoint in {tmp_path}/checkpoints; give"):
        expect_checkpoints(str(tmp_path))
    expect_checkpoints("auto")
    write(tmp_path)
    expect_checkpoints(str(tmp_path))


def test_a_checkpoint_of_another_version_is_refused(tmp_path):
    write(tmp_path, state={"epoch": 1})
    with pytest.raises(DataError, match="another version of hogbatch"):
        find_resume_point("auto", tmp_path)


@pytest.mark.parametrize(("what", "other"), [("network", "5-9-1 relu"), ("seed", 1)])
def test_a_run_that_differs_is_refused_and_the_difference_named(tmp_path, what, other):
    write(tmp_path)
    point = find_resume_point("auto", tmp_path)
    point.check(IDENTITY)
    with pytest.raises(
        UsageError, match=f"its {what} is {IDENTITY[what]!r}, but this run's is {other!r}"
    ):
        point.check({**IDENTITY, what: other})


def test_the_run_directory_that_resume_refers_to(tmp_path):
    run, home = tmp_path / "run", Path("elsewhere")
    assert resumed_dir(str(run), None) == resumed_dir(str(run), home) == run
    assert resumed_dir(str(run / FOLDER), None) == run
    assert resumed_dir(str(run / FOLDER / "000003"), None) == run
    assert resumed_dir("auto", home) == home
    assert resumed_dir("auto", None) is None


def test_the_settings_come_from_the_resumed_run(tmp_path):
    assert settings_file({"resume": str(tmp_path)}) is None
    (tmp_path / "config.toml").write_text("")
    assert settings_file({"resume": str(tmp_path)}) == tmp_path / "config.toml"
    assert settings_file({"resume": "auto", "run_dir": str(tmp_path)}) == tmp_path / "config.toml"
    assert settings_file({"resume": "auto"}) is settings_file({"run_dir": str(tmp_path)}) is None
