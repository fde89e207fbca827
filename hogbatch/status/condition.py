"""What a run does, or how it has ended."""

from typing import Final, NamedTuple

from hogbatch.status.state import Ended, RunState

REASONS: Final = {  # of a status that has no reason of its own
    "finished": "all epochs",
    "target": "the target loss is reached",
    "time": "the maximum training time is over",
}
UNSEEN: Final = "whether its process runs cannot be seen from this machine"


class Condition(NamedTuple):
    """The state of a run, and why or what it waits for.

    The state is "preparing", "waiting", "training", "finished", "stopped", "failed" or "killed?".
    """

    state: str
    reason: str

    @property
    def active(self) -> bool:
        """Whether the run may still train."""
        return self.state in ("waiting", "training")

    @property
    def over(self) -> bool:
        """Whether the run has ended and recorded it; one that was killed may be resumed."""
        return self.state in ("finished", "stopped", "failed")


def condition_of(run: RunState, running: bool | None, crash: str) -> Condition:
    """The condition of a run whose coordinator is `running`; None: that cannot be seen.

    `crash` names the crash report of the run, if there is one.
    """
    if run.ended is not None:
        return _ended(run.ended)
    if running is False:
        return Condition("failed", f"a bug; see {crash}") if crash else _killed(run)
    if run.first_at is None:
        return Condition("preparing", "no events yet: it reads its data, or ended before training")
    unseen = "" if running else UNSEEN
    return (
        Condition("training", unseen) if run.trains else Condition("waiting", unseen or _for(run))
    )


def _ended(ended: Ended) -> Condition:
    state = ended.status if ended.status in ("failed", "stopped") else "finished"
    return Condition(state, ended.reason or REASONS.get(ended.status, ended.status))


def _killed(run: RunState) -> Condition:
    saved = run.checkpoint_at is not None
    advice = "hogbatch train --resume RUN_DIR continues it" if saved else "it has no checkpoint"
    return Condition("killed?", f"no process and no result; {advice}")


def _for(run: RunState) -> str:
    """What a run waits for before it trains."""
    if not run.present:
        return "for workers"
    if any(worker.state == "compiles" for worker in run.present):
        return "for workers that compile their kernels"
    return "for workers to be ready"
