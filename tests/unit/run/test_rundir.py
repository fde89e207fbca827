import os
import shutil
from contextlib import contextmanager

import numpy as np
import pytest

from hogbatch.errors import RunDirectoryHeld, SaveError, UsageError
from hogbatch.events import marker
from hogbatch.run.checkpoint import folder
from hogbatch.run.rundir import (
    CONFIG,
    FOLDER,
    MODEL,
    PREVIOUS,
    UNSAVED,
    RunDirectory,
    located,
)
from tests.support.killed import killed_at_each_call

ARRAYS = {"x": np.zeros(3, np.float32)}
LOGS = ("worker-0.log", "worker-1.log")
MINE = ("notes.txt", "worker-9.log", f"{FOLDER}/mine", f"{FOLDER}/.mine.tmp")  # not of any run
OLD = {"events.jsonl": "old", CONFIG: "old", MODEL: "old", "000001": "old", "000002": "old"}
SAVED = {"events.jsonl": "new", CONFIG: "new", "000001": "new"}  # by a run without a model


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run"


@contextmanager
def begun(path, name="new", others=LOGS):
    """The directory of a run called `name`, which has begun."""
    with RunDirectory.hold(path, others) as directory:
        directory.begin(name, resuming=False)
        yield directory


def write_run(directory, name, model=True, checkpoints=2):
    """The files that a run called `name` writes."""
    for file in ("events.jsonl", "worker-0.log", "worker-1.log", *[MODEL] * model):
        (directory.path / file).write_text(name)
    for _ in range(checkpoints):
        folder.write(directory.checkpoints, ARRAYS, {"run": name})


def old_run(path, **kinds):
    """Create a run directory with a run called "old" and files of the user."""
    with begun(path, "old") as directory:
        write_run(directory, "old", **kinds)
    (path / FOLDER).mkdir(exist_ok=True)
    for name in MINE:
        (path / name).write_text("mine")


def expect_refusal(path, message, act=lambda directory: None):
    """Hold the directory and call `act`; one of both must be refused."""
    with pytest.raises(UsageError, match=message), RunDirectory.hold(path, LOGS) as directory:
        act(directory)


def contents(path):
    """All files of the run in `path`, except the worker log."""
    files = ("events.jsonl", CONFIG, MODEL)
    found = {name: (path / name).read_text() for name in files if (path / name).exists()}
    for each in folder.paths(path / FOLDER):
        found[each.name] = folder.read(each).description["run"]
    return found


class TestHolding:
    def test_a_new_directory_is_the_users_alone_and_says_what_is_the_runs(self, path):
        with begun(path):
            assert {CONFIG, MODEL, "coordinator.json", *LOGS} <= marker.listed(path)
        assert path.stat().st_mode & 0o777 == 0o700
        assert (path / CONFIG).read_text() == "new"

    def test_what_a_run_made_for_nothing_is_removed(self, path):
        def fail(directory):
            raise UsageError("nothing")

        expect_refusal(path, "nothing", fail)
        assert not path.exists()
        path.mkdir(mode=0o700)
        (path / "notes.txt").touch()
        expect_refusal(path, "nothing", fail)
        assert os.listdir(path) == ["notes.txt"]

    def test_a_directory_that_cannot_be_claimed_is_removed(self, path, monkeypatch):
        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        expect_refusal(path, f"cannot use {path} as run directory: No space left")
        assert not path.exists()

    @pytest.mark.parametrize(
        "name",
        [
            *(MODEL, CONFIG, "summary.json", "events.jsonl", "coordinator.json", "crash.txt"),
            *("worker-1.log", "checkpoints", "bad-leases.jsonl", "control.socket"),
        ],
    )
    def test_a_file_of_another_origin_is_named_and_stays(self, path, name):
        path.mkdir(mode=0o700)
        (path / name).write_text("mine")
        expect_refusal(path, f"{path}/{name} does not belong to a run")
        assert os.listdir(path) == [name] and (path / name).read_text() == "mine"

    def test_another_process_is_told_and_the_holder_keeps_its_files(self, path):
        with RunDirectory.hold(path, LOGS):
            before = sorted(os.listdir(path))
            with pytest.raises(RunDirectoryHeld), RunDirectory.hold(path, ["worker-7.log"]):
                pass
            assert sorted(os.listdir(path)) == before

    @pytest.mark.parametrize(
        ("checkpoints", "message"),
        [
            (2, r"\(model.safetensors and 2 checkpoints\): give --resume to continue it, --over"),
            (0, r"\(model.safetensors\): give --overwrite"),
        ],
    )
    def test_a_run_is_not_replaced_by_mistake(self, path, checkpoints, message):
        old_run(path, checkpoints=checkpoints)
        before = contents(path)
        expect_refusal(path, message, RunDirectory.expect_no_run)
        assert contents(path) == before

    def test_a_run_that_saved_nothing_makes_room(self, path):
        old_run(path, model=False, checkpoints=0)
        with RunDirectory.hold(path, LOGS) as directory:
            directory.expect_no_run()
            directory.begin("new", resuming=False)
        assert contents(path) == {CONFIG: "new"}
        assert contents(path / UNSAVED) == {"events.jsonl": "old", CONFIG: "old"}


class TestReplacing:
    @pytest.fixture(autouse=True)
    def old(self, path):
        old_run(path)

    def test_a_run_that_saves_nothing_leaves_the_earlier_one(self, path):
        with begun(path) as directory:
            assert contents(path) == {CONFIG: "new"}
            write_run(directory, "new", model=False, checkpoints=0)
            with pytest.raises(SaveError, match="full"), directory.saving():
                raise SaveError("full")
            assert "was restored; the files of the run that saved nothing" in directory.end()
        assert contents(path) == OLD
        assert contents(path / UNSAVED) == {"events.jsonl": "new", CONFIG: "new"}
        assert not (path / PREVIOUS).exists()

    @pytest.mark.parametrize("what", ["checkpoint", "model"])
    def test_the_first_that_is_saved_replaces_it(self, path, what):
        with begun(path) as directory:
            with directory.saving():
                assert contents(path / PREVIOUS) == OLD
                write_run(directory, "new", what == "model", what == "checkpoint")
            assert not (path / PREVIOUS).exists()
            assert directory.end() is None
        saved = {MODEL: "new", "events.jsonl": "new", CONFIG: "new"}
        assert contents(path) == (SAVED if what == "checkpoint" else saved)
        assert all((path / name).read_text() == "mine" for name in MINE)

    def test_a_file_of_the_user_in_a_checkpoint_is_not_removed(self, path):
        (path / FOLDER / "000001" / "mine").touch()
        with begun(path) as directory, directory.saving():
            write_run(directory, "new")
        assert (path / PREVIOUS / FOLDER / "000001" / "mine").exists()
        message = f"{PREVIOUS} contains files that do not belong to a run"
        expect_refusal(path, message, lambda directory: directory.begin("third", resuming=False))
        assert contents(path)[CONFIG] == "new"

    def test_a_file_of_the_user_is_not_overwritten_by_what_comes_back(self, path):
        with begun(path):
            os.rename(path / PREVIOUS, path / f"{PREVIOUS}.moving")  # killed while moving back
        (path / "summary.json").write_text("mine")
        (path / f"{PREVIOUS}.moving" / "summary.json").write_text("old")
        (path / CONFIG).unlink()
        expect_refusal(path, "which exists; move one of them away", RunDirectory.recover)
        assert (path / "summary.json").read_text() == "mine"

    def test_the_end_does_not_wait_for_a_save_after_which_nothing_is_saved(self, path):
        with begun(path) as directory:
            with directory.saving():
                assert directory.end() is None
                assert contents(path / PREVIOUS) == OLD
            directory.end()
            with pytest.raises(SaveError), directory.saving():
                pass

    def test_an_earlier_run_that_cannot_come_back_is_told_of(self, path, monkeypatch):
        def refuse(*_):
            raise PermissionError(1, "Operation not permitted")

        with begun(path) as directory, monkeypatch.context() as patch:
            patch.setattr(os, "rename", refuse)
            assert "Operation not permitted" in directory.end()
        assert contents(located(path, CONFIG).parent) == OLD


@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
def test_another_directory_is_left_alone(path, how):
    with begun(path) as directory:
        path.rename(path.with_name("moved"))
        if how == "removed":
            shutil.rmtree(path.with_name("moved"))
        elif how == "replaced":
            path.mkdir()
        with pytest.raises(SaveError, match="was removed, moved or replaced"), directory.saving():
            pass
        assert directory.end() is None
    assert how != "replaced" or os.listdir(path) == []


DOOMED = """
from hogbatch.run.rundir import RunDirectory
from tests.unit.run.test_rundir import write_run

def run(victim):
    with RunDirectory.hold(victim, ["worker-0.log"]) as directory:
        directory.recover()
        if {what!r} == "recover":
            return
        directory.begin("new", resuming=False)
        write_run(directory, "new", model=False, checkpoints=0)
        if {what!r} == "save":
            with directory.saving():
                write_run(directory, "new", model=False, checkpoints=1)
        directory.end()
"""


def after_kills(place, what):
    """The contents of copies of `place`/0, recovered after a kill at each call."""
    found = []
    for path, _ in killed_at_each_call(place, DOOMED.format(what=what)):
        expected = located(path, CONFIG).read_text()
        with RunDirectory.hold(path, LOGS) as directory:
            directory.recover()
        found.append(contents(path))
        assert found[-1][CONFIG] == expected, "the settings belong to the run that is resumed"
        assert not any(name.startswith(PREVIOUS) for name in os.listdir(path))
        assert all((path / name).read_text() == "mine" for name in MINE)
    return found


@pytest.mark.slow
class TestKilled:
    def test_a_run_that_has_saved_nothing_loses_nothing(self, tmp_path):
        old_run(tmp_path / "0")
        found = after_kills(tmp_path, "fail")
        assert len(found) > 100 and all(each == OLD for each in found)

    def test_there_is_always_one_run_or_the_other(self, tmp_path):
        old_run(tmp_path / "0")
        found = after_kills(tmp_path, "save")
        first = found.index(SAVED)
        assert 0 < first < len(found) - 10
        assert found == [OLD] * first + [SAVED] * (len(found) - first)

    @pytest.mark.parametrize("saved", [False, True])
    def test_a_recovery_that_is_killed_is_done_by_the_next(self, tmp_path, saved):
        old_run(tmp_path / "0")
        with begun(tmp_path / "0") as directory:
            write_run(directory, "new", model=False, checkpoints=saved)
        found = after_kills(tmp_path, "recover")
        assert all(each == (SAVED if saved else OLD) for each in found)


FILES = ("metrics.csv", "wandb-run-id", "tensorboard", "wandb", "updates")


@pytest.mark.parametrize("mine", [False, True])
def test_files_of_trackers_and_earlier_versions_are_replaced_and_others_beside_them_kept(
    path, mine
):
    with begun(path, "old", (*LOGS, *FILES)) as directory:
        write_run(directory, "old")
    for name in (
        *("tensorboard/events.out.tfevents.1.host.2", "wandb/run-1/files/config.yaml"),
        *("updates/cpu-0.updates", "metrics.csv", *["tensorboard/notes.txt"] * mine),
    ):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("old")
    (path / "wandb" / "latest-run").symlink_to("run-1")
    with begun(path) as directory:
        assert not any((path / name).exists() for name in FILES)
        with directory.saving():
            (path / MODEL).write_text("new")
    assert not any((path / name).exists() for name in FILES)
    kept = [file.name for file in (path / PREVIOUS).rglob("*") if file.is_file()]
    assert kept == ["notes.txt"] * mine and (path / PREVIOUS).exists() is mine
