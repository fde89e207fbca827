"""Small real sets that ship with the package, by name (sources and licences: README.md here)."""

from pathlib import Path
from typing import Final, NamedTuple

FOLDER = Path(__file__).parent


class Sample(NamedTuple):
    """The two files of a set."""

    train: Path
    test: Path


SAMPLES: Final = {"a9a": Sample(FOLDER / "a9a.svm.gz", FOLDER / "a9a.t.svm.gz")}
