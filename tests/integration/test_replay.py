"""Runs with --record in real processes, and their replays."""

import json
import os
import shutil
import signal
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file

from hogbatch.compute.hash_tables import HashTables
from hogbatch.jit import COMPILING
from hogbatch.replay import player as player_module
from hogbatch.replay.player import Player
from hogbatch.replay.recorded import open_run
from hogbatch.telemetry.console import PlainConsole
from hogbatch.telemetry.update_log import FOLDER, Kind, read_folder, record
from tests.support.fault_injection import cli

ROWS = 32_561  # of a9a
USUAL = ("--hidden", 16, "--epochs", 3, "--keep", "last", "--quiet")


@pytest.fixture
def replayed(main):
    """Replays a run and returns the results as JSON."""

    def run(run_dir, *flags):
        done = main("replay", run_dir, "--json", *flags)
        assert (done.returncode, done.stderr.removeprefix(f"{COMPILING}\n")) == (0, "")
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Run directories of recorded runs, by their workers."""
    made = {}

    def train(workers, *flags, data="a9a"):
        if (workers, flags) not in made:
            run_dir = tmp_path_factory.mktemp("recorded") / "run"
            given = (*USUAL, "--workers", workers, "--record", "--run-dir", run_dir, *flags)
            done = cli("train", data, *given)
            assert done.returncode == 0, done.stderr
            made[workers, flags] = run_dir
        return made[workers, flags]

    return train


@pytest.fixture(scope="session")
def labels(tmp_path_factory):
    """A small training set with many labels."""
    random = np.random.default_rng(0)
    lines = ["400 30 50"]
    for _ in range(400):
        features = sorted(random.choice(30, 5, replace=False))
        row = " ".join(f"{feature}:{random.random():.3f}" for feature in features)
        lines.append(f"{features[0]},{features[1] + 20} {row}")
    path = tmp_path_factory.mktemp("labels") / "labels.xmc"
    path.write_text("\n".join(lines) + "\n")
    return path


def same_tensors(first, second):
    one, other = load_file(first), load_file(second)
    return one.keys() == other.keys() and all(
        one[name].tobytes() == other[name].tobytes() for name in one
    )


def check_losses(result, tolerance):
    assert len(result["evaluations"]) >= 1
    for each in result["evaluations"]:
        assert each["replayed_test_loss"] == pytest.approx(each["test_loss"], rel=tolerance)
        assert each["replayed_train_loss"] == pytest.approx(each["train_loss"], rel=tolerance)


def test_a_run_of_one_thread_is_replayed_exactly(recorded, replayed, tmp_path):
    run_dir, model = recorded("cpu:1"), tmp_path / "again.safetensors"
    result = replayed(run_dir, "--output", model)
    assert same_tensors(model, run_dir / "model.safetensors")
    check_losses(result, 1e-6)
    assert result["updates"] == result["recorded_updates"] >= 3 * ROWS * 0.8 // 64
    assert result["findings"] == result["notes"] == []


@pytest.fixture(scope="session")
def dense(tmp_path_factory):
    """A small training set with dense features."""
    random = np.random.default_rng(0)
    features = random.normal(size=(4000, 20)).astype(np.float32)
    path = tmp_path_factory.mktemp("dense") / "dense.npz"
    np.savez(path, X=features, y=features[:, :3].prod(axis=1) > 0)
    return path


def test_a_run_of_a_team_is_replayed_up_to_rounding(recorded, replayed, dense, tmp_path):
    run_dir = recorded("cpu:3", "--cpu-teams", 1, data=dense)
    result = replayed(run_dir, "--output", tmp_path / "again.safetensors")
    again, trained = (
        load_file(folder / name)
        for folder, name in ((tmp_path, "again.safetensors"), (run_dir, "model.safetensors"))
    )
    for name, weights in trained.items():
        np.testing.assert_allclose(again[name], weights, rtol=0, atol=1e-3, err_msg=name)
    check_losses(result, 1e-3)
    assert result["updates"] == result["recorded_updates"] > 0


def test_a_deterministic_run_with_hashed_outputs_is_replayed_exactly(
    recorded, replayed, labels, tmp_path
):
    flags = ("--deterministic", "--output", "lsh", "--average", "off", "--lsh", "dwta:rehash=7")
    # The run that compiles the kernels may differ from later ones in the last bit (README.md).
    recorded("cpu:1", *flags, "--epochs", 1, data=labels)
    run_dir = recorded("cpu:1", *flags, data=labels)
    kinds = np.concatenate([file.records["kind"] for file in read_folder(run_dir)])
    assert (kinds == Kind.BUILD).sum() > 2
    result = replayed(run_dir, "--output", tmp_path / "again.safetensors")
    assert same_tensors(tmp_path / "again.safetensors", run_dir / "model.safetensors")
    check_losses(result, 1e-6)


def played(run):
    return closing(Player(run, lambda update: None, lambda: None))


def test_a_batch_of_one_thread_is_in_the_model_once_it_is_counted(recorded):
    """Not before, which --until and samples of the moving mean would see."""
    states = {}

    def until(updates, seconds):
        states.setdefault(updates, []).append(player.params.copy())
        return updates == 20

    with played(open_run(recorded("cpu:1"), PlainConsole(quiet=True))) as player:
        player.play(until)
    for number in range(1, 20):
        first, *others = states[number]
        assert others and all(np.array_equal(first, other) for other in others)
        assert not np.array_equal(first, states[number + 1][0])


def test_a_replay_trains_on_read_only_data(recorded, monkeypatch):
    """Kernels are compiled for these; for others, each replay would compile them again."""
    given = []

    def keep(*arguments, **settings):
        given.append(arguments[2])
        return model(*arguments, **settings)

    model = player_module.ConcurrentModel
    monkeypatch.setattr(player_module, "ConcurrentModel", keep)
    with played(open_run(recorded("cpu:1"), PlainConsole(quiet=True))):
        ((inputs, labels, *_),) = ((each.inputs, each.labels) for each in given)
        for array in (*inputs, *labels):
            if isinstance(array, np.ndarray):
                assert not array.flags.writeable


def test_tables_built_after_a_roll_back_have_all_outputs(recorded, labels, monkeypatch):
    """The build is recorded before the first batch after the roll-back."""
    flags = ("--deterministic", "--output", "lsh", "--average", "off", "--lsh", "dwta:rehash=7")
    run = open_run(recorded("cpu:1", *flags, data=labels), PlainConsole(quiet=True))
    coordinator, worker = run.files
    third = np.flatnonzero(worker.records["kind"] == Kind.UPDATE)[2]
    at = int(worker.records["end"][third])
    before = coordinator.records[coordinator.records["end"] < at]
    rolled_back = np.concatenate([before, record(Kind.ROLL_BACK, at + 1, at + 2)])
    built = np.concatenate([worker.records[: third + 1], record(Kind.BUILD, at + 3, at + 4)])
    files = [coordinator._replace(records=rolled_back), worker._replace(records=built)]
    plans, build = [], HashTables.build

    def keep(tables, plan, *arguments):
        plans.append(plan)
        return build(tables, plan, *arguments)

    monkeypatch.setattr(HashTables, "build", keep)
    with played(replace(run, files=files)) as player:
        player.play(lambda updates, seconds: False)
        assert player.updates == 3
    assert [(plan.number, plan.redraw, plan.everything) for plan in plans] == [
        (0, False, True),
        (1, False, True),
    ]


@pytest.mark.parametrize("workers", ["cpu:2", "cpu:1,gpu:host"])
def test_two_replays_are_equal_and_near_the_run(recorded, replayed, tmp_path, workers):
    run_dir = recorded(workers, "--start-with", workers.count(",") + 1)
    models = [tmp_path / "1.safetensors", tmp_path / "2.safetensors"]
    first, second = (replayed(run_dir, "--output", model) for model in models)
    assert first == second and same_tensors(*models)
    check_losses(first, 0.1)  # races inside an update are not replayed
    devices = {file.header.device for file in read_folder(run_dir)}
    assert devices == ({"", "cpu", "gpu"} if "gpu" in workers else {"", "cpu"})


def test_every_row_of_every_epoch_is_recorded_once(recorded):
    files = read_folder(recorded("cpu:2", "--start-with", 1))
    records = np.concatenate([file.records for file in files])
    updates = records[records["kind"] == Kind.UPDATE]
    for epoch in range(3):
        own = np.sort(updates[updates["epoch"] == epoch], order="start")
        stops = own["start"] + own["rows"]
        assert own["start"].tolist() == [0, *stops[:-1].tolist()]
    assert set(updates["epoch"].tolist()) == {0, 1, 2}


def test_a_replay_ends_where_until_says(recorded, replayed, main):
    run_dir, steps = recorded("cpu:1"), []
    assert replayed(run_dir, "--until", 100)["updates"] == 100
    with played(open_run(run_dir, PlainConsole(quiet=True))) as player:
        player.play(lambda updates, seconds: steps.append((updates, seconds)))
        assert player.updates > 200
    middle = next(seconds for updates, seconds in steps if updates == 100)
    expected = next(updates for updates, seconds in steps if seconds >= middle)
    assert replayed(run_dir, "--until", f"{middle!r}s")["updates"] == expected > 0
    text = main("replay", run_dir, "--until", 100).stdout
    assert "100 of" in text and "recorded updates replayed" in text


def test_a_worker_that_is_killed_and_restarted_is_replayed(job, replayed):
    flags = ("--hidden", 16, "--max-seconds", 300, "--eval-seconds", 0.1, "--record")
    flags += ("--policy", "paper-adaptive")  # which parks nobody
    job.train("a9a", "--workers", "cpu:1,gpu:host", "--start-with", 2, *flags)
    victim = job.wait_for_event("worker_joined", worker="cpu-0")["pid"]
    job.wait_for_event("lease", 2, worker="cpu-0")
    os.kill(victim, signal.SIGKILL)
    restarted = job.wait_for_event("worker_restarted")["pid"]
    again = job.wait_for_event("worker_joined", pid=restarted)["worker"]
    job.wait_for_event("lease", 2, worker=again)
    job.coordinator.send_signal(signal.SIGINT)
    assert job.finish() == 130
    names = {file.header.name for file in read_folder(job.run_dir)}
    assert names >= {"coordinator", "cpu-0", "gpu-0", again}
    first, second = replayed(job.run_dir), replayed(job.run_dir)
    assert first == second
    last = first["evaluations"][-1]
    assert last["replayed_test_loss"] == pytest.approx(last["test_loss"], rel=0.1)


def test_the_update_after_which_the_model_is_not_finite_is_named(replayed, tmp_path):
    run_dir = tmp_path / "run"
    flags = ("--hidden", 16, "--epochs", 1, "--lr", 3e38, "--optimizer", "sgd", "--quiet")
    cli("train", "a9a", *flags, "--workers", "cpu:1", "--record", "--run-dir", run_dir)
    result = replayed(run_dir)
    (finding, *_) = result["findings"]
    assert finding["what"].startswith("the model was not finite at layers.")
    update = finding["update"]
    assert update["worker"] == "cpu-0" and len(update["rows_of_data"]) == update["rows"]
    kinds = np.concatenate([file.records["kind"] for file in read_folder(run_dir)])
    assert (kinds == Kind.ROLL_BACK).sum() >= 1


# What cannot be replayed ------------------------------------------------------------------------


@pytest.fixture
def copied(recorded, tmp_path):
    """A copy of a recorded run, which a test may change."""
    return shutil.copytree(recorded("cpu:1"), tmp_path / "copy")


def refused(main, *arguments):
    done = main("replay", *arguments)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    return done.stderr


def test_runs_without_a_record_are_refused(main, finished_run, tmp_path):
    assert "has no record of its updates" in refused(main, finished_run)
    assert "is not a run directory" in refused(main, tmp_path / "nothing")


def test_a_foreign_file_is_refused(main, copied):
    (copied / FOLDER / "cpu-0.updates").write_text("not a record")
    assert "this is not a record of updates" in refused(main, copied)


def test_a_truncated_file_is_replayed_up_to_its_end(replayed, copied):
    path = copied / FOLDER / "cpu-0.updates"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 - 7])
    result = replayed(copied)
    assert 0 < result["updates"] == result["recorded_updates"]


def test_a_worker_killed_before_its_first_record_is_noted(replayed, main, copied):
    empty = copied / FOLDER / "cpu-0.1.updates"
    empty.write_bytes(b"")
    result = replayed(copied)
    assert result["updates"] == result["recorded_updates"] > 0
    (note,) = result["notes"]
    assert note.startswith(f"{empty} has no header; its worker was killed")
    assert note in main("replay", copied, "--until", 1).stdout.splitlines()


def test_changed_data_are_refused(main, labels, tmp_path):
    data, run_dir = tmp_path / "labels.xmc", tmp_path / "run"
    data.write_bytes(labels.read_bytes())
    flags = ("--hidden", 4, "--epochs", 1, "--workers", "cpu:1", "--record", "--quiet")
    assert main("train", data, *flags, "--run-dir", run_dir).returncode == 0
    data.write_text(data.read_text().replace(":0.", ":0.1"))
    assert "cannot be replayed: its data was '320 rows" in refused(main, run_dir)


def test_other_settings_than_the_record_has_are_refused(main, copied):
    config = copied / "config.toml"
    config.write_text(config.read_text().replace("seed = 0", "seed = 1"))
    assert "its seed was 0, but now it is 1" in refused(main, copied)
    config.unlink()
    assert "cannot read the configuration" in refused(main, copied)


def test_a_resumed_run_is_not_recorded(main, copied):
    done = main("train", "--resume", copied, "--epochs", 4, "--quiet")
    assert done.returncode == 2
    assert "a resumed run cannot be recorded" in done.stderr and "--no-record" in done.stderr


def test_a_new_run_replaces_the_record(copied, main):
    done = main("train", "a9a", *USUAL, "--workers", "cpu:1", "--run-dir", copied, "--overwrite")
    assert done.returncode == 0, done.stderr
    assert not (copied / FOLDER).exists()
    assert "has no record" in refused(main, copied)
