"""The data sets and networks of the matrix, with two targets each."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.common.cases import CASES, Case
from benchmarks.common.data_sets import Task
from benchmarks.common.servers import short_name

UNREACHABLE: Final = 1e-9
PAPER_SERVERS: Final = ("k80-28cores", "v100-32cores")


@dataclass(frozen=True, slots=True)
class MatrixSet:
    """A case with two targets, early and near the best test loss, and the maximum epochs of a cell.

    How the targets were chosen, and what a cell costs: docs/rehearsal-matrix.md.
    """

    case: Case
    early: float
    late: float
    epochs: int
    rows: int  # of the training set
    rows_per_s: float  # rehearsed rows per real second of one core
    cpu_rows_per_s: float | None = None  # the same if no GPU trains: the output layer is hashed
    paper: bool = False  # with a network of the paper, which is trained on its servers only

    @property
    def targets(self) -> dict[str, float]:
        """The targets by name; with a metric, 1 - metric."""
        return {"early": self.early, "late": self.late}

    @property
    def wall_s(self) -> float:
        """Most real seconds of a cell: cells of cheap sets run first."""
        return self.epochs * self.rows / self.rows_per_s

    def shown(self, target: str) -> str:
        """A target as a table shows it."""
        value = self.targets[target]
        return f"{self.case.metric} {1 - value:.4g}" if self.case.metric else f"{value:g}"

    def flags(self, data: Path) -> list[str]:
        """Flags of `hogbatch rehearse` for the data, the network, and the end of the run.

        There is no flag that stops at a metric. With a loss that no run reaches, a run with
        a metric is evaluated as often as the others.
        """
        target = UNREACHABLE if self.case.metric else self.late
        return [
            *self.case.flags(data),
            "--epochs",
            f"{self.epochs}",
            "--target-loss",
            f"{target:g}",
        ]

    def allows(self, server: str) -> bool:
        """Whether the matrix contains this set on the server of that name."""
        return not self.paper or short_name(server) in PAPER_SERVERS


CLICKS: Final = Case(Task("clicks", (64, 32), 0.277, rows=500_000), metric="auc")
HIGGS_LIKE: Final = Case(Task("collisions", (300,) * 4, 0.515, rows=300_000))
W8A_L2: Final = replace(CASES["w8a"], more=("--l2", "1e-4"))
DELICIOUS_DROPOUT: Final = replace(CASES["delicious"], more=("--dropout", "0.25"))
SETS: Final = {
    "imdb": MatrixSet(CASES["imdb"], 0.32, 0.28, 8, 25_000, 230e3),
    "w8a": MatrixSet(CASES["w8a"], 0.05, 0.042, 12, 39_800, 55e3),
    "delicious": MatrixSet(CASES["delicious"], 61.5, 60.5, 25, 12_920, 30e3),
    "citeulike": MatrixSet(CASES["citeulike"], 0.55, 0.45, 4, 20_755, 5e3, 20e3),
    "covtype": MatrixSet(CASES["covtype"], 0.45, 0.34, 6, 464_810, 50e3),
    "w8a-paper": MatrixSet(CASES["w8a-paper"], 0.06, 0.046, 12, 39_800, 15e3, paper=True),
    "covtype-paper": MatrixSet(CASES["covtype-paper"], 0.55, 0.40, 3, 464_810, 20e3, paper=True),
    "covtype-long": MatrixSet(CASES["covtype"], 0.25, 0.20, 15, 464_810, 30e3),
    "w8a-l2": MatrixSet(W8A_L2, 0.045, 0.0369, 12, 39_800, 55e3),
    "delicious-dropout": MatrixSet(DELICIOUS_DROPOUT, 61.5, 60.3, 25, 12_920, 30e3),
    "citeulike-best": MatrixSet(CASES["citeulike"], 0.45, 0.44, 4, 20_755, 5e3, 20e3),
    "clicks": MatrixSet(CLICKS, 0.285, 0.277, 2, 400_000, 30e3),
    "higgs-like": MatrixSet(HIGGS_LIKE, 0.54, 0.515, 12, 240_000, 36e3),
    "a9a": MatrixSet(CASES["a9a"], 0.36, 0.33, 2, 32_561, 200e3),
}
EXAMPLE: Final = "a9a"  # the bundled sample, for a trial run; not in the matrix by default
