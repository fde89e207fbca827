"""Small real data sets bundled with the package (sources and licences: README.md here)."""

from pathlib import Path
from typing import Final, NamedTuple

FOLDER = Path(__file__).parent


class Sample(NamedTuple):
    """The training and test file of a bundled data set."""

    train: Path
    test: Path


SAMPLES: Final = {"a9a": Sample(FOLDER / "a9a.svm.gz", FOLDER / "a9a.t.svm.gz")}
