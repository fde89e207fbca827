"""The data sets and networks of the matrix, with two targets each."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.common.cases import CASES, Case
from benchmarks.common.servers import short_name

UNREACHABLE: Final = 1e-9
PAPER_SERVERS: Final = ("k80-28cores", "v100-32cores")


@dataclass(frozen=True, slots=True)
class MatrixSet:
    """A case with two targets, early and near the best test loss, and the maximum epochs of a cell.

    How the targets were chosen: docs/rehearsal-matrix.md.
    """

    case: Case
    early: float
    late: float
    epochs: int
    wall_s: float  # rough time of one cell on one core: cells of cheap sets run first
    paper: bool = False  # with a network of the paper, which is rehearsed on its servers only

    @property
    def targets(self) -> dict[str, float]:
        """The targets by name; with a metric, 1 - metric."""
        return {"early": self.early, "late": self.late}

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


SETS: Final = {
    "imdb": MatrixSet(CASES["imdb"], 0.32, 0.28, 8, 5.0),
    "w8a": MatrixSet(CASES["w8a"], 0.05, 0.042, 12, 15.0),
    "delicious": MatrixSet(CASES["delicious"], 61.5, 60.5, 25, 20.0),
    "citeulike": MatrixSet(CASES["citeulike"], 0.55, 0.45, 4, 20.0),
    "covtype": MatrixSet(CASES["covtype"], 0.45, 0.34, 6, 60.0),
    "w8a-paper": MatrixSet(CASES["w8a-paper"], 0.06, 0.046, 12, 120.0, paper=True),
    "covtype-paper": MatrixSet(CASES["covtype-paper"], 0.55, 0.40, 3, 240.0, paper=True),
    "a9a": MatrixSet(CASES["a9a"], 0.36, 0.33, 2, 2.0),
}
EXAMPLE: Final = "a9a"  # the bundled sample, for a trial run; not in the matrix by default
