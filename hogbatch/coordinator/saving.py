"""From the parts of a coordinator to what is saved of them, and back."""

from collections import Counter
from dataclasses import replace

from hogbatch.coordinator.epochs import Epochs
from hogbatch.coordinator.leases import Leases
from hogbatch.coordinator.progress import Progress
from hogbatch.coordinator.recovery import Recovery
from hogbatch.coordinator.roster import Roster
from hogbatch.coordinator.saved import Saved


def save(
    epochs: Epochs,
    progress: Progress,
    recovery: Recovery,
    leases: Leases,
    roster: Roster,
    faults: Counter[str],
    now: float,
) -> Saved:
    """All it takes to go on from `now`, by the caller's clock."""
    seconds = progress.seconds(now)
    return Saved(
        epoch=epochs.number,
        epoch_rows=epochs.rows.rows,
        todo=epochs.rows.unfinished,
        quarantined=epochs.quarantined,
        rollbacks=replace(recovery.rollbacks),
        rows=progress.rows,
        seconds=seconds,
        best=progress.best_loss,
        best_rows=progress.best_rows,
        evaluated_at=progress.evaluated_at,
        evaluated_rows=progress.evaluated_rows,
        evaluation_seconds=progress.evaluation_seconds,
        last_lease=leases.last,
        faults=dict(faults),
        batch_sizes=roster.batch_sizes(),
        admitted=roster.admitted,
        workers=roster.records(seconds),
    )


def restore(
    saved: Saved,
    epochs: Epochs,
    progress: Progress,
    recovery: Recovery,
    leases: Leases,
    roster: Roster,
    faults: Counter[str],
) -> None:
    """Let new parts go on where `saved` was taken."""
    epochs.resume(saved.epoch, saved.quarantined, saved.epoch_rows, saved.todo)
    progress.resume(saved)
    recovery.rollbacks = replace(saved.rollbacks)
    leases.last = saved.last_lease
    gone = [
        w if w.left_at is not None else replace(w, left_at=saved.seconds) for w in saved.workers
    ]
    roster.resume(gone, saved.batch_sizes, saved.admitted)
    faults.update(saved.faults)
