"""One cell of the matrix: a rehearsal of one method on one set and server with one seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.common import hogbatch_run
from benchmarks.common.servers import digest, short_name
from benchmarks.common.source_key import source_key
from benchmarks.rehearsals.methods import Method, batch_of
from benchmarks.rehearsals.outcome import outcome, reached
from benchmarks.rehearsals.sets import SETS, MatrixSet

Json = dict[str, Any]
REHEARSE: Final = (*hogbatch_run.PROGRAM, "rehearse")
ALWAYS: Final = ("--patience", "0")
START_S: Final = 4.0  # real seconds of a cell before its first batch, and at its end
EPOCHS_USED: Final = 0.5  # expected fraction of the epochs that a cell trains before its target
LARGE_BATCH: Final = 4096  # rows; larger ones are rehearsed at half of the speed


class InterruptedCell(Exception):
    """The rehearsal was stopped from outside: it has no result."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell; the order of its fields is that of its name."""

    set_name: str
    server: str  # bundled name, or path of a description
    method: Method
    seed: int

    @property
    def set(self) -> MatrixSet:
        """The data set with its network and targets."""
        return SETS[self.set_name]

    @property
    def place(self) -> tuple[str, str]:
        """Set and server; cells with the same place are compared."""
        return self.set_name, short_name(self.server)

    @property
    def most_s(self) -> float:
        """Real seconds on one core if it trains for all epochs of its set."""
        return START_S + self._epochs_s

    @property
    def rough_wall_s(self) -> float:
        """Expected real seconds on one core; runs without a metric end at their target."""
        return START_S + self._epochs_s * (1.0 if self.set.case.metric else EPOCHS_USED)

    @property
    def _epochs_s(self) -> float:
        rate = self.set.rows_per_s
        if not self.method.on_gpu:
            rate = self.set.cpu_rows_per_s or rate
        elif (batch_of(self.method.name) or 0) > LARGE_BATCH:
            rate /= 2
        return self.set.epochs * self.set.rows / rate

    @property
    def name(self) -> str:
        """The name of its file."""
        return "--".join([*self.place, self.method.name, f"{self.seed}"])

    def settings(self, within: float) -> Json:
        """All that its result depends on, for :class:`ResultStore`."""
        return {
            "flags": self.flags(Path()),
            "targets": self.set.targets,
            "within": within,
            "server": digest(self.server),
            "sources": source_key(),
        }

    def flags(self, data: Path) -> list[str]:
        """Flags of `hogbatch rehearse`, without the limit of time and the server."""
        return [*self.set.flags(data), *self.method.flags, "--seed", f"{self.seed}", *ALWAYS]

    def run(
        self,
        data: Path,
        max_seconds: float | None,
        limit_s: float,
        program: Sequence[str],
    ) -> Json:
        """Rehearse for at most `max_seconds` simulated and `limit_s` real seconds.

        A rehearsal that fails has the result {"error": ...}. Raises InterruptedCell if it was
        stopped from outside, for example by Ctrl-C.
        """
        flags = [*self.flags(data), "--server", self.server]
        if max_seconds is not None:
            flags += ["--max-seconds", f"{max_seconds:.6g}"]
        done = hogbatch_run.execute([*program, *flags], limit_s)
        result = {**self._labels(), "max_seconds": max_seconds, "wall_s": done.wall_s}
        if done.summary.get("status") == "stopped":
            raise InterruptedCell(self.name)
        if done.error or not done.summary:
            return result | {"error": done.error or "there is no summary.json"}
        try:
            return result | {"error": None, **outcome(self.set, done.summary)}
        except Exception as error:  # one broken result must not end the matrix
            return result | {"error": f"its results cannot be read: {error!r}"}

    def _labels(self) -> Json:
        set_name, server = self.place
        return {
            "set": set_name,
            "server": server,
            "method": self.method.name,
            "kind": self.method.kind,
            "seed": self.seed,
            "rough_wall_s": self.rough_wall_s,
        }


def refreshed(result: Json) -> Json:
    """A stored result, with the moments of its targets computed from its history again."""
    if result["error"]:
        return result
    return result | {"reached": reached(SETS[result["set"]], result["history"])}
