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
    MOVING,
    PREVIOUS,
    RunDirectory,
)
from hogbatch.wire.address import NAME as ADDRESS

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
            assert not directory.begin("new", resuming=False)
        assert contents(path) == {CONFIG: "new"}
        assert not (path / PREVIOUS).exists()


class TestReplacing:
    @pytest.fixture(autouse=True)
    def old(self, path):
        old_run(path)

    def test_the_earlier_run_is_moved_and_stays_until_the_next_one_is_replaced(self, path):
        for name, earlier in (("new", OLD), ("third", SAVED)):
            with RunDirectory.hold(path, LOGS) as directory:
                assert directory.begin(name, resuming=False)
                assert contents(path) == {CONFIG: name} and contents(path / PREVIOUS) == earlier
                write_run(directory, name, model=False, checkpoints=1)
        assert all((path / name).read_text() == "mine" for name in MINE)

    def test_a_run_that_has_saved_nothing_does_not_take_its_place(self, path):
        with begun(path) as directory:
            write_run(directory, "new", model=False, checkpoints=0)
        with RunDirectory.hold(path, LOGS) as directory:
            directory.expect_no_run()
            assert not directory.begin("third", resuming=False)
        assert contents(path) == {CONFIG: "third"} and contents(path / PREVIOUS) == OLD

    @pytest.mark.parametrize("last", ["events.jsonl", "000002", MODEL, PREVIOUS])
    def test_a_move_that_is_interrupted_loses_nothing(self, path, last, monkeypatch):
        def fail_for_last(source, target, rename=os.rename):
            if target.name == last:
                raise OSError(28, "No space left on device")
            rename(source, target)

        (path / PREVIOUS).mkdir()
        (path / PREVIOUS / MODEL).write_text("older")
        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", fail_for_last)
            expect_refusal(path, "No space left", lambda held: held.begin("new", resuming=False))
        if last != PREVIOUS:
            left = [name for name in OLD if name in contents(path)]
            assert left == {"000002": [CONFIG, MODEL, "000002"], MODEL: [MODEL]}.get(last, [*OLD])
            assert contents(path / PREVIOUS) == {MODEL: "older"}
            expect_refusal(path, "give.* --overwrite to replace it", RunDirectory.expect_no_run)
        with begun(path):
            assert contents(path) == {CONFIG: "new"} and contents(path / PREVIOUS) == OLD
        assert PREVIOUS in os.listdir(path) and MOVING not in os.listdir(path)


@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
def test_another_directory_is_left_alone(path, how):
    with begun(path) as directory:
        path.rename(path.with_name("moved"))
        if how == "removed":
            shutil.rmtree(path.with_name("moved"))
        elif how == "replaced":
            path.mkdir()
        with pytest.raises(SaveError, match="was removed, moved or replaced"):
            directory.expect_in_place()
    assert how != "replaced" or os.listdir(path) == []


def test_files_of_trackers_and_earlier_versions_are_moved_too(path):
    files = {
        *("metrics.csv", "wandb-run-id", "updates/cpu-0.updates", "wandb/run-1/config.yaml"),
        "tensorboard/events.out.tfevents.1.host.2",
    }
    with begun(path, "old", (*LOGS, *{name.partition("/")[0] for name in files})) as directory:
        write_run(directory, "old")
    for name in files:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("old")
    (path / "wandb" / "latest-run").symlink_to("run-1")
    with begun(path):
        assert all((path / PREVIOUS / name).exists() for name in files)
    assert sorted(os.listdir(path)) == sorted([CONFIG, FOLDER, PREVIOUS, marker.NAME, ADDRESS])
