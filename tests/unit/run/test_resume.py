import re
from dataclasses import asdict, replace

import numpy as np
import pytest

from hogbatch.config.effect import without_policy, without_servers
from hogbatch.config.sources import to_toml
from hogbatch.config.train import TrainConfig
from hogbatch.errors import DataError, UsageError
from hogbatch.events.event import Evaluation
from hogbatch.events.records import WorkerRecord
from hogbatch.model.network import Network
from hogbatch.run.checkpoint import folder
from hogbatch.run.resume import (
    FOLDER,
    expect_checkpoints,
    find_resume_point,
    merge_settings,
    resumed_dir,
    settings_file,
)
from tests.unit.run.checkpoint.test_snapshots import SAVED

EVALUATION = Evaluation(1.5, 2.0, 180, 0.4, 0.5, {"accuracy": 0.75})
IDENTITY = {"network": "5-4-1 relu", "seed": 0}
IDENTITY |= {"metric": "loss", "threshold": "none", "temperature": "off"}
NETWORK = Network.build(5, (4,), 1, "relu", "logistic")
SIZES = TrainConfig(optimizer="adagrad"), NETWORK, 100  # training rows
CELLS = np.zeros(NETWORK.parameters, np.float32)
ARRAYS = {
    **dict.fromkeys(("params", "first", "kept"), CELLS),
    "second": CELLS[:0],
    "steps": np.array([18]),
    "merges": np.array([0]),
    "quarantined": np.arange(10),
}


def write(run_dir, epoch=2, damaged=False, arrays=None, **changes):
    worker = WorkerRecord("cpu-0", "cpu", 2, 180, 18, 1.0, 0.9, 10, [(0.0, 10)], [])
    description = {
        "state": {**asdict(SAVED), "epoch": epoch, "workers": [asdict(worker)]},
        "history": [EVALUATION.fields],
        "kept": EVALUATION.fields,
        "identity": IDENTITY,
    }
    path = folder.write(run_dir / FOLDER, ARRAYS | (arrays or {}), description | changes)
    if damaged:
        (path / "manifest.json").write_text("x")
    return path


def refused(message, resume, run_dir):
    with pytest.raises(DataError, match=message):
        find_resume_point(str(resume), run_dir)


def test_the_saved_state_is_read_back(tmp_path):
    write(tmp_path)
    point = find_resume_point("auto", tmp_path)
    described = point.described
    assert (described.state.epoch, described.state.todo) == (2, SAVED.todo)
    assert described.state.todo[0].deaths == 1
    assert described.state.workers[0].batch_trace == [(0.0, 10)]
    assert (described.history, described.kept) == ([EVALUATION], EVALUATION)
    assert point.unusable == []


def test_the_newest_usable_checkpoint_is_chosen_unless_one_is_named(tmp_path):
    first, second, third = (write(tmp_path, epoch, epoch == 3) for epoch in (1, 2, 3))
    point = find_resume_point("auto", tmp_path)
    assert point.described.state.epoch == 2
    assert len(point.unusable) == 1 and "000003" in point.unusable[0]
    for epoch, path in enumerate((first, second), 1):
        point = find_resume_point(str(path), tmp_path / "elsewhere")
        assert point.described.state.epoch == epoch and point.run_dir == tmp_path
    refused("000003", third, tmp_path)


def test_what_cannot_be_resumed_is_named(tmp_path):
    assert find_resume_point("auto", tmp_path) is None
    refused("there is no checkpoint in", tmp_path, tmp_path)
    for _ in range(2):
        write(tmp_path, damaged=True)
    refused(r"no checkpoint .* is usable: .*000002.*; .*000001", "auto", tmp_path)
    refused(
        "not valid for this version: .*epoch_rows", write(tmp_path, state={"epoch": 1}), tmp_path
    )


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


def test_a_run_that_differs_is_refused_and_the_difference_named(tmp_path):
    write(tmp_path)
    point = find_resume_point("auto", tmp_path)
    point.check(IDENTITY, *SIZES)
    with pytest.raises(UsageError, match="its seed is 0, but this run's is 1"):
        point.check({**IDENTITY, "seed": 1}, *SIZES)
    with pytest.raises(UsageError, match="its metric is 'loss', but this run's is 'auc'"):
        point.check({**IDENTITY, "metric": "auc"}, *SIZES)
    with pytest.raises(UsageError, match="its threshold is 'none', but this run's is 'f1'"):
        point.check({**IDENTITY, "threshold": "f1"}, *SIZES)
    with pytest.raises(UsageError, match="its temperature is 'off', but this run's is 'auto'"):
        point.check({**IDENTITY, "temperature": "auto"}, *SIZES)


STATES = {  # changes of the state, by the reason why a run cannot continue from it
    r"<= 1000000000.0 - at `\$.state.seconds`": {"seconds": 1e30},
    r"state.evaluated_at`": {"evaluated_at": float("nan")},
    r">= 0 - at `\$.state.rows`": {"rows": -1},
    r"state.epoch`": {"epoch": 2**63},
    r"state.rollbacks.counted`": {"rollbacks": {"counted": 99}},
    r"todo: expected separate ranges within 90 rows; got \[10, 20, 1\] after row 15": {
        "todo": [(10, 20, 1), (5, 15)]
    },
    r"got \[30, 91, 0\]": {"todo": [(30, 91)]},
    r"got \[30, 30, 0\]": {"todo": [(30, 30)]},
    r"faults: expected those of a run; got \['x'\]": {"faults": {"x": 1}},
}
TENSORS = {
    "tensor params: expected finite numbers": {"params": CELLS + np.float32(np.nan)},
    r"tensors.first: expected float32\[n\]; got float64": {"first": CELLS.astype(np.float64)},
    r"tensors.quarantined: expected int64\[n\]": {"quarantined": np.zeros((2, 2), np.int64)},
    "tensors: expected the fields params": {"other": CELLS},
    "tensor steps: expected a count": {"steps": np.array([-1])},
}


@pytest.mark.parametrize("reason", [*STATES, *TENSORS])
def test_an_older_checkpoint_is_used_if_the_newest_is_not_valid(tmp_path, reason):
    write(tmp_path, epoch=1)
    if reason in STATES:
        path = write(tmp_path, state={**asdict(SAVED), **STATES[reason]})
    else:
        path = write(tmp_path, arrays=TENSORS[reason])
    point = find_resume_point("auto", tmp_path)
    assert point.described.state.epoch == 1
    assert re.search(f"{path}: not valid for this version: .*{reason}", *point.unusable)
    refused(reason, path, tmp_path)


@pytest.mark.parametrize(
    ("arrays", "sizes", "message"),
    [
        ({"params": CELLS[1:]}, SIZES, r"tensor params: expected \[\d+\] cells; got"),
        ({"kept": CELLS[1:]}, SIZES, "tensor kept"),
        ({"steps": np.zeros(2, np.int64)}, SIZES, r"tensor steps: expected \[1\] cells; got \[2\]"),
        (
            {},
            (TrainConfig(optimizer="adam"), NETWORK, 100),
            r"tensor second: expected \[\d+\] cells; got \[0\]",
        ),
        ({}, (SIZES[0], NETWORK, 80), "epoch_rows: expected at most 80 rows; got 90"),
        (
            {"quarantined": np.arange(11)},
            SIZES,
            "tensor quarantined: expected at most 10 of 100 rows",
        ),
        ({"quarantined": np.zeros(2, np.int64)}, SIZES, "tensor quarantined"),
        ({"quarantined": np.array([100])}, SIZES, "tensor quarantined"),
    ],
)
def test_a_checkpoint_that_does_not_fit_the_data_is_named(tmp_path, arrays, sizes, message):
    path = write(tmp_path, arrays=arrays)
    point = find_resume_point("auto", tmp_path)
    with pytest.raises(DataError, match=f"{path} is not valid: {message}.*earlier checkpoint"):
        point.check(IDENTITY, *sizes)


def test_the_run_directory_that_resume_refers_to(tmp_path):
    run = tmp_path / "run"
    for path in (run, run / FOLDER, run / FOLDER / "000003"):
        assert resumed_dir(str(path)) == run


def test_the_settings_come_from_the_resumed_run(tmp_path):
    assert settings_file({"resume": str(tmp_path)}) is None
    (tmp_path / "config.toml").write_text("")
    for given in ({"resume": str(tmp_path)}, {"resume": "auto", "run_dir": str(tmp_path)}):
        assert settings_file(given) == tmp_path / "config.toml"
    assert settings_file({"resume": "auto"}) is settings_file({"run_dir": str(tmp_path)}) is None
    tmp_path.chmod(0o755)
    with pytest.raises(UsageError, match="expected a run directory with mode 0700; got 0755"):
        settings_file({"resume": str(tmp_path)})


def test_the_user_must_name_the_module_of_a_policy_again(tmp_path):
    """A configuration in a directory is not a request to run code."""
    file = tmp_path / "config.toml"
    file.write_text('policy = "mine:Policy"\n')
    flags = {"data": "a9a", "resume": str(tmp_path)}
    with pytest.raises(UsageError, match=r"the policy mine:Policy, .*give --policy mine:Pol"):
        merge_settings(flags)
    for policy in ("mine:Policy", "fixed"):
        assert merge_settings(flags | {"policy": policy}).policy == policy
    assert merge_settings({"data": "a9a"}, file).policy == "mine:Policy"


@pytest.fixture
def resumed(tmp_path):
    """The settings with which `flags` resume a run with the given settings."""

    def merge(toml, **flags):
        (tmp_path / "config.toml").write_text(f'data = "a9a"\n{toml}\n')
        return merge_settings({"resume": str(tmp_path), **flags})

    return merge


def test_a_run_of_several_servers_is_continued_on_one_and_the_reverse(resumed):
    several = 'cluster = "local"\nservers = 2\nmerge-rows = 100\nplane = "relay"'
    assert resumed(several).servers == 2
    for one in ("none", ""):
        config = resumed(several, cluster=one, workers="cpu:2")
        assert (config.cluster, config.servers, config.merge_rows) == (None, 1, None)
        assert without_servers(config) == {}
    for one in ("", "deterministic = true\nepochs = 3"):
        config = resumed(f'workers = "cpu:1"\nstart-with = 1\n{one}', cluster="local", servers=3)
        assert (config.workers, config.servers, config.deterministic) == ("auto", 3, False)
        assert without_servers(config) == {}


def test_what_was_given_or_chooses_the_rows_is_not_removed_from_the_settings(resumed):
    config = resumed('cluster = "local"\nservers = 2\ndata-copies = 2', cluster="none", servers=2)
    assert set(without_servers(config)) == {"servers", "data_copies"}


def test_a_run_is_continued_with_another_policy(resumed):
    assert resumed('policy = "paper-adaptive"\nalpha = 3', policy="fixed").alpha == 2
    assert resumed('policy = "paper-adaptive"\nalpha = 3').alpha == 3
    config = resumed('policy = "paper-adaptive"', policy="fixed", alpha=3)
    assert set(without_policy(config)) == {"alpha"}


def test_a_run_below_the_home_directory_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    (tmp_path / "config.toml").write_text("")
    for given in (
        {"resume": f"~/{tmp_path.name}"},
        {"resume": "auto", "run_dir": "~/" + tmp_path.name},
    ):
        assert settings_file(given) == tmp_path / "config.toml"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test_fraction": 0.5}, "its test-fraction is 0.2, but this run's is 0.5"),
        ({"drop": ("a",)}, r"its drop is \[\], but this run's is \['a'\]"),
        ({"data": "b.csv"}, "its data is 'a.csv', but this run's is 'b.csv'"),
        ({"data_cache": "off"}, "its data is '9 rows', but this run's is '8 rows'"),
    ],
)
def test_the_setting_is_named_by_which_data_differ(tmp_path, changes, message):
    before = TrainConfig("a.csv", optimizer="adagrad")
    write(tmp_path, identity={"data": "9 rows"}, config=to_toml(before))
    point, now = find_resume_point("auto", tmp_path), replace(before, **changes)
    point.check({"data": "9 rows"}, now, *SIZES[1:])
    with pytest.raises(UsageError, match=message):
        point.check({"data": "8 rows", "network": "1-2"}, now, *SIZES[1:])


def test_the_augmentation_agrees_if_the_checkpoint_has_one(tmp_path):
    write(tmp_path, identity={"augment": "flip"})
    point, config = find_resume_point("auto", tmp_path), TrainConfig("a.csv", optimizer="adagrad")
    point.check({"augment": "flip", "seed": 3}, config, *SIZES[1:])
    with pytest.raises(UsageError, match="its augment is 'flip', but this run's is 'none'"):
        point.check({"augment": "none"}, config, *SIZES[1:])
