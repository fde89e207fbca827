import numpy as np
import pytest

from hogbatch.coordinator.ledger import RowRange
from hogbatch.coordinator.saved_state import RollBacks, SavedState
from hogbatch.events.event import CheckpointWritten
from hogbatch.model.network import Network
from hogbatch.run.checkpoint import folder, snapshots as snapshots_module
from hogbatch.run.checkpoint.snapshots import MAX_CHECKPOINTS, Snapshots
from hogbatch.store.model import SharedModel

NETWORK = Network.build(5, (4,), 1, "relu", "logistic")
FIRST_WEIGHT = 0.25
SAVED = SavedState(
    epoch=2,
    epoch_rows=90,
    todo=[RowRange(10, 20, 1), RowRange(30, 90)],
    quarantined=10,
    rollbacks=RollBacks(total=5, counted=1, finite_at=120, since=150, period=40),
    rows=200,
    seconds=3.25,
    best=0.5,
    best_rows=0,
    evaluated_at=3.0,
    evaluated_rows=180,
    evaluation_seconds=0.1,
    last_lease=44,
)


@pytest.fixture
def model():
    size = NETWORK.parameters
    values = np.arange(3 * size, dtype=np.float32).reshape(3, size)
    return SharedModel(*values, np.array([7]), np.array([3]))


@pytest.fixture
def snapshots(model, tmp_path):
    made = Snapshots(
        model,
        NETWORK,
        tmp_path / "checkpoints",
        lambda: ({"about": "the run"}, {"quarantined": np.array([4, 2])}),
        lambda: model.params.fill(FIRST_WEIGHT),
        lambda: made.roll_back_calls.append(True),
    )
    made.roll_back_calls = []
    return made


def save(snapshots):
    """Take a snapshot for a checkpoint, which is not written yet."""
    draft = snapshots.draft(SAVED)
    assert snapshots.copy(draft) is None
    return draft


def expect_model(model, expected):
    for name in expected.arrays:
        assert np.array_equal(getattr(model, name), getattr(expected, name)), name


def written(tmp_path):
    checkpoint, bad = folder.newest_intact(tmp_path / "checkpoints")
    assert bad == []
    return checkpoint


def test_the_last_good_copy_is_put_back_which_does_not_change_with_the_model(model, snapshots):
    before = model.copy()
    assert snapshots.copy() is None
    model.params[:] = np.nan
    model.steps[0] = 99
    assert snapshots.copy() is not None
    snapshots.roll_back()
    expect_model(model, before)
    assert snapshots.roll_back_calls == [True]


def test_without_a_copy_the_first_weights_are_put_back(model, snapshots):
    model.params[0] = np.nan
    snapshots.roll_back()
    assert set(model.params) == {FIRST_WEIGHT} and snapshots.roll_back_calls


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("array", ["params", "first", "second"])
def test_the_place_that_is_not_finite_is_named(model, snapshots, array, value):
    NETWORK.tensors()[0].view(getattr(model, array))[2, 3] = value
    slot = "" if array == "params" else "the optimizer's slot of "
    assert snapshots.copy() == f"{slot}layers.0.weight[2, 3]"


def test_a_checkpoint_has_the_model_and_all_that_stood_at_its_beginning(model, snapshots, tmp_path):
    draft, before = save(snapshots), model.copy()
    model.params[:] = 0
    assert draft.write() is None
    checkpoint = written(tmp_path)
    for name, array in before.arrays.items():
        assert np.array_equal(checkpoint.arrays[name], array)
    assert list(checkpoint.arrays["quarantined"]) == [4, 2]
    assert checkpoint.description["about"] == "the run"
    assert checkpoint.description["state"]["todo"] == [[10, 20, 1], [30, 90, 0]]
    assert draft.about == CheckpointWritten(2, 200, 3.25)


def test_a_checkpoint_that_is_not_written_yet_is_not_overwritten(model, snapshots, tmp_path):
    snapshots.copy()
    draft = save(snapshots)
    for _ in range(3):
        model.params[:] += 1
        snapshots.copy()
    assert draft.write() is None
    assert np.array_equal(written(tmp_path).arrays["params"], model.params - 3)


def test_copies_use_the_same_memory_again_and_the_last_few_are_kept(snapshots, tmp_path):
    used = set()
    for _ in range(MAX_CHECKPOINTS + 2):
        draft = save(snapshots)
        used.add(draft.arrays["params"].ctypes.data)
        draft.write()
    assert len(used) == 2
    names = [path.name for path in folder.paths(tmp_path / "checkpoints")]
    assert names == ["000005", "000004", "000003"]


def test_the_reason_why_it_cannot_be_written_is_told(snapshots, tmp_path):
    (tmp_path / "checkpoints").write_text("a file")
    assert "cannot save a checkpoint: Not a directory" in save(snapshots).write()


class TestLarge:
    """A model larger than LARGE, of which no snapshot is kept."""

    @pytest.fixture
    def large(self, monkeypatch, request, model):
        monkeypatch.setattr(snapshots_module, "LARGE", 0)
        return request.getfixturevalue("snapshots")

    def test_it_is_written_at_once_and_put_back_from_the_disk_without_a_copy_in_memory(
        self, model, large, tmp_path, monkeypatch
    ):
        draft, before = save(large), model.copy()
        assert np.array_equal(written(tmp_path).arrays["params"], model.params)
        assert draft.write() is None
        assert len(folder.paths(tmp_path / "checkpoints")) == 1
        model.params[:] = np.nan
        assert large.copy() == "layers.0.weight[0, 0]"
        monkeypatch.setattr(folder.np, "empty", None)  # what arrays are read into otherwise
        large.roll_back()
        expect_model(model, before)

    def test_a_damaged_checkpoint_is_skipped_and_the_one_before_put_back(
        self, model, large, tmp_path
    ):
        save(large)
        before = model.copy()
        model.params[:] = 7
        save(large)
        tensors = tmp_path / "checkpoints" / "000002" / folder.TENSORS
        content = bytearray(tensors.read_bytes())
        content[-4] ^= 1
        tensors.write_bytes(content)
        large.roll_back()
        assert np.array_equal(model.params, before.params)

    def test_one_that_went_bad_while_it_was_written_is_not_kept(
        self, model, large, tmp_path, monkeypatch
    ):
        write = folder.write

        def poisoned(*arguments):
            NETWORK.tensors()[1].view(model.params)[2] = np.inf
            return write(*arguments)

        monkeypatch.setattr(folder, "write", poisoned)
        assert save(large).write() == (
            "not saving a checkpoint of a model with NaN or Inf at layers.0.bias[2]"
        )
        assert folder.paths(tmp_path / "checkpoints") == []
        large.roll_back()
        assert set(model.params) == {
            FIRST_WEIGHT
        }  # there is no checkpoint, so training starts over


def test_of_large_checkpoints_only_the_last_is_kept(snapshots, tmp_path, monkeypatch):
    for _ in range(2):
        save(snapshots).write()
    assert len(folder.paths(tmp_path / "checkpoints")) == 2
    monkeypatch.setattr(snapshots_module, "LARGE_CHECKPOINT", 100)
    save(snapshots).write()
    assert [path.name for path in folder.paths(tmp_path / "checkpoints")] == ["000003"]
