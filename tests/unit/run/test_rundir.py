import os
import shutil
import subprocess
import sys

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

ARRAYS = {"x": np.zeros(3, np.float32)}
LOGS = ("worker-0.log", "worker-1.log")
MINE = ("notes.txt", "worker-9.log", f"{FOLDER}/mine", f"{FOLDER}/.mine.tmp")  # not of any run


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run"


def write_run(directory, name, model=True, checkpoints=2):
    """The files that a run called `name` writes."""
    for file in ("events.jsonl", "worker-0.log", "worker-1.log", *[MODEL] * model):
        (directory.path / file).write_text(name)
    for _ in range(checkpoints):
        folder.write(directory.checkpoints, ARRAYS, {"run": name})


def old_run(path, **kinds):
    """Create a run directory with a run called "old" and files of the user."""
    with RunDirectory.hold(path, LOGS) as directory:
        directory.begin("old", resuming=False)
        write_run(directory, "old", **kinds)
    (path / FOLDER).mkdir(exist_ok=True)
    for name in MINE:
        (path / name).write_text("mine")


def contents(path):
    """All files of the run in `path`, except the worker log."""
    files = ("events.jsonl", CONFIG, MODEL)
    found = {name: (path / name).read_text() for name in files if (path / name).exists()}
    for each in folder.paths(path / FOLDER):
        found[each.name] = folder.read(each).description["run"]
    return found


OLD = {"events.jsonl": "old", CONFIG: "old", MODEL: "old", "000001": "old", "000002": "old"}


class TestHolding:
    def test_a_new_directory_is_the_users_alone_and_says_what_is_the_runs(self, path):
        with RunDirectory.hold(path, LOGS) as directory:
            directory.begin("new", resuming=False)
            assert {CONFIG, MODEL, "coordinator.json", *LOGS} <= marker.listed(path)
        assert path.stat().st_mode & 0o777 == 0o700
        assert (path / CONFIG).read_text() == "new"

    def test_a_directory_made_for_nothing_is_removed(self, path):
        with pytest.raises(KeyError), RunDirectory.hold(path, LOGS):
            raise KeyError
        assert not path.exists()

    def test_a_directory_that_cannot_be_claimed_is_removed(self, path, monkeypatch):
        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with (
            pytest.raises(UsageError, match=f"cannot use {path} as run directory: No space left"),
            RunDirectory.hold(path, LOGS),
        ):
            pass
        assert not path.exists()

    def test_a_directory_of_the_user_stays_as_it_was(self, path):
        path.mkdir(mode=0o700)
        (path / "notes.txt").touch()
        with pytest.raises(KeyError), RunDirectory.hold(path, LOGS):
            raise KeyError
        assert os.listdir(path) == ["notes.txt"]

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
        with (
            pytest.raises(UsageError, match=f"{path}/{name} does not belong to a run"),
            RunDirectory.hold(path, LOGS),
        ):
            pass
        assert os.listdir(path) == [name] and (path / name).read_text() == "mine"

    def test_another_process_is_told_and_the_holder_keeps_its_files(self, path):
        with RunDirectory.hold(path, LOGS):
            before = sorted(os.listdir(path))
            with pytest.raises(RunDirectoryHeld), RunDirectory.hold(path, ["worker-7.log"]):
                pass
            assert sorted(os.listdir(path)) == before

    def test_a_run_is_not_replaced_by_mistake(self, path):
        old_run(path)
        with (
            RunDirectory.hold(path, LOGS) as directory,
            pytest.raises(
                UsageError,
                match=r"contains a run \(model.safetensors and 2 checkpoints\): give --resume to "
                "continue it, --overwrite to replace it, or another --run-dir",
            ),
        ):
            directory.expect_no_run()
        assert contents(path) == OLD

    def test_without_a_checkpoint_there_is_nothing_to_resume(self, path):
        old_run(path, checkpoints=0)
        with (
            RunDirectory.hold(path, LOGS) as directory,
            pytest.raises(UsageError, match=r"\(model.safetensors\): give --overwrite"),
        ):
            directory.expect_no_run()

    def test_a_run_that_saved_nothing_makes_room(self, path):
        old_run(path, model=False, checkpoints=0)
        with RunDirectory.hold(path, LOGS) as directory:
            directory.expect_no_run()
            directory.begin("new", resuming=False)
        assert contents(path) == {CONFIG: "new"}
        assert contents(path / UNSAVED) == {"events.jsonl": "old", CONFIG: "old"}


class TestReplacing:
    def test_a_run_that_saves_nothing_leaves_the_earlier_one(self, path):
        old_run(path)
        with RunDirectory.hold(path, LOGS) as directory:
            directory.begin("new", resuming=False)
            assert contents(path) == {CONFIG: "new"}
            write_run(directory, "new", model=False, checkpoints=0)
            assert "was restored; the files of the run that saved nothing" in directory.end()
        assert contents(path) == OLD
        assert contents(path / UNSAVED) == {"events.jsonl": "new", CONFIG: "new"}
        assert not (path / PREVIOUS).exists()

    @pytest.mark.parametrize("what", ["checkpoint", "model"])
    def test_the_first_that_is_saved_replaces_it(self, path, what):
        old_run(path)
        with RunDirectory.hold(path, LOGS) as directory:
            directory.begin("new", resuming=False)
            with directory.saving():
                assert contents(path / PREVIOUS) == OLD
                write_run(directory, "new", what == "model", what == "checkpoint")
            assert not (path / PREVIOUS).exists()
            assert directory.end() is None
        saved = {"000001": "new"} if what == "checkpoint" else {MODEL: "new"}
        assert contents(path) == {CONFIG: "new", "events.jsonl": "new"} | saved

    def test_a_save_that_fails_leaves_it(self, path):
        old_run(path)
        with RunDirectory.hold(path, LOGS) as directory:
            directory.begin("new", resuming=False)
            with pytest.raises(SaveError, match="full"), directory.saving():
                raise SaveError("full")
            directory.end()
        assert contents(path) == OLD

    def test_files_of_the_user_stay_where_they_are(self, path):
        old_run(path)
        with RunDirectory.hold(path, LOGS) as directory:
            directory.begin("new", resuming=False)
            with directory.saving():
                write_run(directory, "new")
        assert all((path / name).read_text() == "mine" for name in MINE)

    def test_a_file_of_the_user_in_a_checkpoint_is_not_removed(self, path):
        old_run(path)
        (path / FOLDER / "000001" / "mine").touch()
        with RunDirectory.hold(path, LOGS) as directory:
            directory.begin("new", resuming=False)
            with directory.saving():
                write_run(directory, "new")
        assert (path / PREVIOUS / FOLDER / "000001" / "mine").exists()
        with (
            RunDirectory.hold(path, LOGS) as directory,
            pytest.raises(
                UsageError, match=f"{PREVIOUS} contains files that do not belong to a run"
            ),
        ):
            directory.begin("third", resuming=False)
        assert contents(path)[CONFIG] == "new"

    def test_a_file_of_the_user_is_not_overwritten_by_what_comes_back(self, path):
        old_run(path)
        with RunDirectory.hold(path, LOGS) as directory:
            directory.begin("new", resuming=False)
            os.rename(path / PREVIOUS, path / f"{PREVIOUS}.moving")  # killed while moving back
        (path / "summary.json").write_text("mine")
        (path / f"{PREVIOUS}.moving" / "summary.json").write_text("old")
        (path / CONFIG).unlink()
        with (
            RunDirectory.hold(path, LOGS) as directory,
            pytest.raises(UsageError, match="which exists; move one of them away"),
        ):
            directory.recover()
        assert (path / "summary.json").read_text() == "mine"

    def test_nothing_is_saved_after_the_end(self, path):
        with RunDirectory.hold(path, LOGS) as directory:
            directory.end()
            with pytest.raises(SaveError), directory.saving():
                pass

    def test_the_end_does_not_wait_for_a_save(self, path):
        old_run(path)
        with RunDirectory.hold(path, LOGS) as directory:
            directory.begin("new", resuming=False)
            with directory.saving():
                assert directory.end() is None
                assert contents(path / PREVIOUS) == OLD

    def test_an_earlier_run_that_cannot_come_back_is_told_of(self, path, monkeypatch):
        def refuse(*_):
            raise PermissionError(1, "Operation not permitted")

        old_run(path)
        with RunDirectory.hold(path, LOGS) as directory:
            directory.begin("new", resuming=False)
            with monkeypatch.context() as patch:
                patch.setattr(os, "rename", refuse)
                assert "Operation not permitted" in directory.end()
        assert contents(located(path, CONFIG).parent) == OLD


@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
def test_another_directory_is_left_alone(path, how):
    with RunDirectory.hold(path, LOGS) as directory:
        directory.begin("new", resuming=False)
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
import os, shutil, signal, sys
from pathlib import Path
from hogbatch.run.rundir import RunDirectory
from tests.unit.run.test_rundir import write_run

CALLS = {"open", "write", "fsync", "close", "mkdir", "link", "rename", "replace", "unlink", "rmdir"}
place, what = Path(sys.argv[1]), sys.argv[2]

def die_at(count):
    def see(frame, event, function):
        nonlocal count
        if event in ("c_call", "c_return") and function.__name__ in CALLS:
            count -= 1
            if count == 0:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.setprofile(see)

def run(victim):
    with RunDirectory.hold(victim, ["worker-0.log"]) as directory:
        directory.recover()
        if what == "recover":
            return
        directory.begin("new", resuming=False)
        write_run(directory, "new", model=False, checkpoints=0)
        if what == "save":
            with directory.saving():
                write_run(directory, "new", model=False, checkpoints=1)
        directory.end()

code, count = -signal.SIGKILL, 0
while code == -signal.SIGKILL:
    count += 1
    victim = place / str(count)
    shutil.copytree(place / "0", victim)
    child = os.fork()
    if not child:
        die_at(count)
        run(victim)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(count)
sys.exit(code)
"""


def doomed(place, what):
    """Run it on copies of `place`/0, each killed at a different call that modifies the disk."""
    done = subprocess.run(
        [sys.executable, "-c", DOOMED, place, what], stdout=subprocess.PIPE, text=True, check=True
    )
    return [place / str(number) for number in range(1, int(done.stdout) + 1)]


def started_again(path):
    """The contents of a run directory after the next process has recovered it."""
    expected = located(path, CONFIG).read_text()
    with RunDirectory.hold(path, LOGS) as directory:
        directory.recover()
    found = contents(path)
    assert found[CONFIG] == expected, "the settings belong to the run that is resumed"
    assert not any(name.startswith(PREVIOUS) for name in os.listdir(path))
    assert all((path / name).read_text() == "mine" for name in MINE)
    return found


@pytest.mark.slow
class TestKilled:
    def test_a_run_that_has_saved_nothing_loses_nothing(self, tmp_path):
        old_run(tmp_path / "0")
        found = [started_again(path) for path in doomed(tmp_path, "fail")]
        assert len(found) > 100 and all(each == OLD for each in found)

    def test_there_is_always_one_run_or_the_other(self, tmp_path):
        old_run(tmp_path / "0")
        new = {"events.jsonl": "new", CONFIG: "new", "000001": "new"}
        found = [started_again(path) for path in doomed(tmp_path, "save")]
        first = found.index(new)
        assert 0 < first < len(found) - 10
        assert found == [OLD] * first + [new] * (len(found) - first)

    @pytest.mark.parametrize("saved", [False, True])
    def test_a_recovery_that_is_killed_is_done_by_the_next(self, tmp_path, saved):
        path = tmp_path / "0"
        old_run(path)
        with RunDirectory.hold(path, LOGS) as directory:
            directory.begin("new", resuming=False)
            write_run(directory, "new", model=False, checkpoints=saved)
        new = {"events.jsonl": "new", CONFIG: "new", "000001": "new"}
        for victim in doomed(tmp_path, "recover"):
            assert started_again(victim) == (new if saved else OLD)


def test_the_updates_that_an_earlier_version_recorded_are_replaced_with_the_run(path):
    with RunDirectory.hold(path, (*LOGS, "updates")) as directory:
        directory.begin("old", resuming=False)
        write_run(directory, "old")
        (path / "updates").mkdir()
        (path / "updates" / "cpu-0.updates").write_text("old")
    with RunDirectory.hold(path, LOGS) as directory:
        directory.begin("new", resuming=False)
        assert (path / PREVIOUS / "updates" / "cpu-0.updates").exists()
        with directory.saving():
            (path / MODEL).write_text("new")
    assert not (path / PREVIOUS).exists() and not (path / "updates").exists()


class TestTrackers:
    FILES = ("metrics.csv", "tensorboard", "wandb", "wandb-run-id")

    def logged_run(self, path):
        with RunDirectory.hold(path, (*LOGS, *self.FILES)) as directory:
            directory.begin("old", resuming=False)
            write_run(directory, "old")
            (path / "metrics.csv").write_text("old")
            (path / "tensorboard").mkdir()
            (path / "tensorboard" / "events.out.tfevents.1.host.2").write_text("old")
            files = path / "wandb" / "offline-run-1" / "files"
            files.mkdir(parents=True)
            (files / "config.yaml").write_text("old")
            (path / "wandb" / "latest-run").symlink_to("offline-run-1")

    def replace(self, path):
        with RunDirectory.hold(path, LOGS) as directory:  # the new run has no trackers
            directory.begin("new", resuming=False)
            assert not any((path / name).exists() for name in self.FILES)
            with directory.saving():
                (path / MODEL).write_text("new")

    def test_their_files_are_replaced_with_the_run(self, path):
        self.logged_run(path)
        self.replace(path)
        assert not (path / PREVIOUS).exists()
        assert not any((path / name).exists() for name in self.FILES)

    def test_other_files_beside_those_of_tensorboard_are_kept(self, path):
        self.logged_run(path)
        (path / "tensorboard" / "notes.txt").write_text("mine")
        self.replace(path)
        kept = [file for file in (path / PREVIOUS).rglob("*") if file.is_file()]
        assert [file.name for file in kept] == ["notes.txt"]
