"""The runs that are compared: the same flags and seed, once real and once rehearsed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from benchmarks.common import hogbatch_run, machine
from benchmarks.common.arrival import arrival
from benchmarks.common.cases import CASES, Case
from benchmarks.common.servers import digest
from benchmarks.common.source_key import source_key

Json = dict[str, Any]
Mode = Literal["real", "rehearsed"]
MODES: Final[tuple[Mode, Mode]] = ("real", "rehearsed")
SIMULATION: Final = ("rehearse", "servers", "simulate")  # not part of real runs
DEFAULT_LEASE_MS: Final = 50.0
UNREACHABLE: Final = 1e-9  # a loss
LIMIT_S: Final = 900.0  # real seconds of one run


class TruthSet(NamedTuple):
    """A data set with its target, and limits that are far beyond it."""

    case: Case
    target: float  # test loss; with a metric, 1 - metric
    eval_seconds: float  # a tenth of the time of one core to the target, or less
    epochs: int
    speed_epochs: int  # from which the speed is measured: several seconds of one core

    @property
    def lease_ms(self) -> float:
        """Duration of a lease: the default, or less so that evaluations are not late."""
        return min(DEFAULT_LEASE_MS, 500 * self.eval_seconds)

    def flags(self, data: Path) -> list[str]:
        """Flags for the data, the network, the evaluations and the end."""
        loss = UNREACHABLE if self.case.metric else self.target
        limits = ["--target-loss", f"{loss:g}", "--epochs", f"{self.epochs}", "--patience", "0"]
        limits += ["--eval-seconds", f"{self.eval_seconds:g}", "--lease-ms", f"{self.lease_ms:g}"]
        return [*self.case.flags(data), *limits]


SETS: Final = {
    "imdb": TruthSet(CASES["imdb"], 0.28, 0.01, 4, 80),
    "w8a": TruthSet(CASES["w8a"], 0.05, 0.05, 8, 8),
    "citeulike": TruthSet(CASES["citeulike"], 0.55, 0.05, 1, 4),
    "delicious": TruthSet(CASES["delicious"], 61.5, 0.1, 12, 12),
    "covtype": TruthSet(CASES["covtype"], 0.45, 0.3, 4, 2),
    "a9a": TruthSet(CASES["a9a"], 0.34, 0.02, 2, 8),
}
EXAMPLE: Final = "a9a"  # the bundled sample, for a trial run
WORKERS: Final = ("cpu:1", "cpu:2", "cpu:1,gpu:host", "cpu:16")


class Programs(NamedTuple):
    """The commands that train and rehearse."""

    train: Sequence[str] = (*hogbatch_run.PROGRAM, "train")
    rehearse: Sequence[str] = (*hogbatch_run.PROGRAM, "rehearse")


PROGRAMS: Final = Programs()


def processes(workers: str) -> list[str]:
    """Flags that only real runs have: all workers start together, and nothing else is written."""
    return ["--start-with", f"{workers.count(',') + 1}", "--checkpoint-seconds", "0"]


@dataclass(frozen=True, slots=True)
class TruthRun:
    """One run of a pair."""

    set_name: str
    workers: str
    seed: int
    mode: Mode
    server: str  # description of this machine; only rehearsals read it

    @property
    def name(self) -> str:
        """The name of its file."""
        workers = self.workers.replace(":", "").replace(",", "+")
        return "--".join([self.set_name, workers, f"{self.seed}", self.mode])

    @property
    def settings(self) -> Json:
        """All that its result depends on, for :class:`ResultStore`."""
        real = self.mode == "real"
        return {
            "flags": self.flags(Path()),
            "target": SETS[self.set_name].target,
            "where": machine.cpu_model() if real else digest(self.server),
            "sources": source_key(SIMULATION if real else ()),
        }

    def flags(self, data: Path) -> list[str]:
        """The flags that both runs of a pair have."""
        own = ["--workers", self.workers, "--seed", f"{self.seed}"]
        return [*SETS[self.set_name].flags(data), *own]

    def run(self, data: Path, programs: Programs) -> Json:
        """Train or rehearse; {"error": ...} if that failed or lost workers."""
        program, own = programs.rehearse, ["--server", self.server]
        if self.mode == "real":
            program, own = programs.train, processes(self.workers)
        done = hogbatch_run.execute([*program, *self.flags(data), *own], LIMIT_S)
        found = {
            "set": self.set_name,
            "workers": self.workers,
            "seed": self.seed,
            "mode": self.mode,
            "wall_s": done.wall_s,
        }
        if done.error or not done.summary:
            return found | {"error": done.error or "there is no summary.json"}
        if lost := done.summary["faults"]["workers_lost"]:
            return found | {"error": f"{lost} of the workers lost"}
        return found | {"error": None, **self._outcome(done.summary)}

    def refreshed(self, result: Json) -> Json:
        """A stored result, with the moment of its target computed from its curve again."""
        return result if result["error"] else result | self._reached(result["curve"])

    def _reached(self, curve: Iterable[Sequence[float | None]]) -> Json:
        """Seconds and rows at the target; None if it was not reached."""
        names = ("seconds", "rows", "test_loss")
        points = (dict(zip(names, point, strict=True)) for point in curve)
        at = arrival(points, SETS[self.set_name].target)
        return {"seconds": at and at.seconds, "rows": at and at.rows}

    def _outcome(self, summary: Json) -> Json:
        history = SETS[self.set_name].case.points(summary["history"])
        curve = [[p["seconds"], p["rows"], p["test_loss"]] for p in history]
        return {
            **self._reached(curve),
            "updates": {w["name"]: w["updates"] for w in summary["workers"]},
            "curve": curve,
        }
