"""The coordinator's part of the record of a run."""

from types import SimpleNamespace

import pytest

from hogbatch.coordinator.adapters import Adapters
from hogbatch.run.recording import RunRecording
from hogbatch.telemetry.update_log import Kind, read_folder


class Snapshots:
    """Snapshots of a finite model, of which each is kept or not."""

    def __init__(self):
        self.kept, self.rolled_back = False, 0

    def copy(self, draft):
        self.kept = draft is not None
        return ""

    def roll_back(self):
        self.rolled_back += 1


@pytest.fixture
def given():
    names = Adapters.__dataclass_fields__
    return Adapters(**{**dict.fromkeys(names), "snapshots": Snapshots()})


def test_snapshots_that_a_roll_back_would_not_restore_are_recorded_as_such(tmp_path, given):
    with RunRecording(tmp_path, {}) as recording:
        snapshots = recording.of(given).snapshots
        for draft in (None, SimpleNamespace()):
            assert snapshots.copy(draft) == ""
            assert snapshots.kept == (draft is not None)
        snapshots.roll_back()
    assert given.snapshots.rolled_back == 1
    ((*records,),) = (file.records for file in read_folder(tmp_path))
    assert [(each["kind"], each["number"]) for each in records] == [
        (Kind.SNAPSHOT, 0),
        (Kind.SNAPSHOT, 1),
        (Kind.ROLL_BACK, 0),
    ]
