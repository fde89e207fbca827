"""The coordinator's part of the record of a run (`--record`): what happens to the whole model."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from hogbatch.coordinator.adapters import Adapters, CheckpointAdapter, SnapshotAdapter
from hogbatch.coordinator.saved_state import SavedState
from hogbatch.telemetry.records import Evaluation, RunTotals
from hogbatch.telemetry.update_log import (
    COORDINATOR,
    FOLDER,
    Kind,
    LogHeader,
    UpdateLog,
    now,
    record,
)
from hogbatch.version import version


class RunRecording:
    """Records one run in `run_dir`. `identity` describes its data and settings to a replay."""

    def __init__(self, run_dir: Path, identity: Mapping[str, str | int]) -> None:
        header = LogHeader(
            version(), run_dir.name, COORDINATOR, -1, "", 0, os.getpid(), dict(identity)
        )
        self._log = UpdateLog.create(run_dir / FOLDER, header)
        self._evaluations = 0

    def of(self, adapters: Adapters) -> Adapters:
        """Return adapters that do what `adapters` do, and record it."""
        return replace(
            adapters,
            snapshots=_RecordedSnapshots(adapters.snapshots, self._add),
            shuffle=self._recorded_shuffle(adapters.shuffle),
            report=self._recorded_report(adapters.report),
        )

    def sampled(self) -> None:
        """Record that the moving mean takes a sample now."""
        self._add(Kind.SAMPLE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._log.close()

    def _add(self, kind: Kind, begin: int | None = None, number: int = 0, epoch: int = 0) -> None:
        at = now()
        begin = at if begin is None else begin
        self._log.append(record(kind, begin, at, number=number, epoch=epoch))

    def _recorded_shuffle(self, shuffle: Callable[[int, int], None]) -> Callable[[int, int], None]:
        def run(epoch: int, without: int) -> None:
            began = now()
            shuffle(epoch, without)
            self._add(Kind.SHUFFLE, began, without, epoch)

        return run

    def _recorded_report(
        self, report: Callable[[Evaluation, RunTotals], None]
    ) -> Callable[[Evaluation, RunTotals], None]:
        def run(evaluation: Evaluation, totals: RunTotals) -> None:
            self._add(Kind.EVALUATION, number=self._evaluations)  # no worker writes at this moment
            self._evaluations += 1
            report(evaluation, totals)

        return run


class _RecordedSnapshots:
    """Snapshots that are recorded."""

    def __init__(self, snapshots: SnapshotAdapter, add: Callable[..., None]) -> None:
        self._snapshots, self._add = snapshots, add

    def draft(self, saved: SavedState) -> CheckpointAdapter:
        return self._snapshots.draft(saved)

    def copy(self, draft: Any) -> str:
        began = now()
        where = self._snapshots.copy(draft)
        self._add(Kind.SNAPSHOT, began, int(self.kept))
        return where

    @property
    def kept(self) -> bool:
        return self._snapshots.kept

    def roll_back(self) -> None:
        began = now()
        self._snapshots.roll_back()
        self._add(Kind.ROLL_BACK, began)
