"""How fast rehearsals are: rows per real second, over the rows/s of one real core."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.common import hogbatch_run, machine
from benchmarks.common.servers import digest, short_name
from benchmarks.common.source_key import source_key
from benchmarks.rehearsal_truth.runs import LIMIT_S, SETS, Programs, processes

Json = dict[str, Any]
ONE_CORE: Final = "cpu:1"
NO_EVALUATION: Final = ("--eval-seconds", "1e9", "--patience", "0")
ALL_TRAIN: Final = ("--policy", "paper-adaptive")  # which parks nobody


@dataclass(frozen=True, slots=True)
class SpeedRun:
    """The speed of rehearsals of one set with some processors of a server.

    It is computed from the difference of a rehearsal of several epochs and one of a single epoch,
    so that starting and loading do not count. Evaluations do not count either.
    """

    set_name: str
    server: str
    workers: str | None  # None: the default of the server

    @property
    def name(self) -> str:
        """The name of its file."""
        workers = (self.workers or "default").replace(":", "").replace(",", "+")
        return "--".join([self.set_name, short_name(self.server), workers, "speed"])

    @property
    def settings(self) -> Json:
        """All that its result depends on, for :class:`ResultStore`."""
        return {
            "epochs": SETS[self.set_name].speed_epochs,
            "workers": self.workers,
            "where": [machine.cpu_model(), digest(self.server)],
            "sources": source_key(),
        }

    def refreshed(self, result: Json) -> Json:
        """A stored result: nothing of it is computed again."""
        return result

    def run(self, data: Path, programs: Programs) -> Json:
        """Rehearse twice and train once on one core; {"error": ...} if that failed."""
        found = {"set": self.set_name, "server": short_name(self.server), "workers": self.workers}
        flags = [*SETS[self.set_name].case.flags(data), *NO_EVALUATION, *ALL_TRAIN]
        place = ["--server", self.server, *(["--workers", self.workers] if self.workers else [])]
        core = ["--workers", ONE_CORE, *processes(ONE_CORE)]
        many = SETS[self.set_name].speed_epochs
        runs = [
            _epochs([*programs.rehearse, *flags, *place], 1),
            _epochs([*programs.rehearse, *flags, *place], many),
            _epochs([*programs.train, *flags, *core], many),
        ]
        if errors := [done.error for done in runs if done.error]:
            return found | {"error": errors[0]}
        short, long, real = runs
        if long.wall_s <= short.wall_s:
            return found | {"error": f"{many} epochs took no longer than one: too few to measure"}
        rate = (long.summary["rows"] - short.summary["rows"]) / (long.wall_s - short.wall_s)
        core_rate = real.summary["rows"] / real.summary["train_seconds"]
        found |= {"rows_per_s": rate, "core_rows_per_s": core_rate}
        return found | {"error": None, "speed": rate / core_rate}


def _epochs(command: Sequence[str], epochs: int) -> hogbatch_run.TrainResult:
    return hogbatch_run.execute([*command, "--epochs", f"{epochs}"], LIMIT_S)
