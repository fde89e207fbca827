"""The data sets of the benchmarks, with the network to train on each and its target test loss.

Test rows are those on which peers and hogbatch are measured until they reach the target. For
hogbatch they are its validation rows, so it trains on the same rows as the peers.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.common import generated
from benchmarks.peers.contract import Problem, Rows, write_problem
from hogbatch.config.losses import choose_loss
from hogbatch.config.sets import SetName
from hogbatch.data.load import LoadedData, load
from hogbatch.data.order import Fractions

FILES: Final = "w8a.svm.gz, covtype.csv.gz, delicious-{train,test}.xmc.gz, imdb-{train,test}.svm.gz"
DIRECTORY_HELP: Final = f"directory of the data sets: {FILES.replace('%', '%%')}"


TEST_FRACTION: Final = 0.2  # without a file of test rows
SPLIT: Final = Fractions(test=0, validation=TEST_FRACTION)


@dataclass(frozen=True, slots=True)
class Task:
    """A data set, the network for it and the test loss to reach."""

    data: str  # file names
    hidden: tuple[int, ...]
    target: float
    test: str | None = None
    loss: str = "auto"  # "auto": the one that hogbatch chooses for the kind of labels
    rows: int = 0  # of a set of :mod:`benchmarks.common.generated` with the name `data`

    def files(self, directory: Path) -> list[Path]:
        """The files that must exist."""
        if self.rows:
            return [generated.csv(self.data, self.rows)]
        return [directory / name for name in (self.data, self.test) if name]

    def flags(self, directory: Path) -> list[str]:
        """Flags of `hogbatch train` for the data and the network."""
        hidden = ",".join(map(str, self.hidden))
        flags = [str(self.files(directory)[0]), "--hidden", hidden]
        if self.test:
            flags += ["--validation", str(directory / self.test)]
        else:
            flags += ["--validation-fraction", str(TEST_FRACTION)]
        return [*flags, "--test-fraction", "0"]

    def load(self, directory: Path, seed: int = 0) -> LoadedData:
        """The rows of a run with this seed; the validation rows are the test rows of peers."""
        files: dict[SetName, Path] = {"validation": directory / self.test} if self.test else {}
        return load(self.files(directory)[0], files=files, fractions=SPLIT, seed=seed)

    def problem(self, directory: Path, seed: int = 0) -> Problem:
        """The rows as hogbatch reads, splits and scales them in a run with this seed.

        UsageError if the loss does not support the kind of labels.
        """
        loaded = self.load(directory, seed)
        encoding = loaded.encoding
        sets = loaded.train, loaded.sets["validation"]
        rows = [Rows.of(examples, encoding.outputs) for examples in sets]
        loss = choose_loss(self.loss, encoding.kind).name
        return Problem(loss, self.hidden, encoding.outputs, *rows)


IMDB = ("imdb-train.svm.gz", "imdb-test.svm.gz")
TASKS: Final = {
    "covtype": Task("covtype.csv.gz", (512, 512, 512), 0.45),
    "w8a": Task("w8a.svm.gz", (512, 512, 512), 0.05),
    "delicious": Task("delicious-train.xmc.gz", (512, 512), 61.5, "delicious-test.xmc.gz"),
    "imdb": Task(IMDB[0], (128,), 0.28, IMDB[1]),
    "imdb-linear": Task(IMDB[0], (), 0.30, IMDB[1]),
}


@contextmanager
def task_directory(
    task: Task, data: Path, seed: int = 0, test_rows: int | None = None
) -> Iterator[tuple[Problem, Path]]:
    """The problem of `task` for runs with `seed`, and the directory from which peers read it.

    `test_rows` limits the test rows.
    """
    problem = task.problem(data, seed)
    part = slice(test_rows)
    problem = replace(problem, test=Rows(problem.test.x[part], problem.test.y[part]))
    with tempfile.TemporaryDirectory() as directory:
        write_problem(problem, Path(directory))
        yield problem, Path(directory)
