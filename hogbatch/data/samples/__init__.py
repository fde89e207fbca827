"""Small real data sets bundled with the package (sources and licences: README.md here)."""

from pathlib import Path
from typing import Final

FOLDER = Path(__file__).parent
SAMPLES: Final = {"a9a": {"train": FOLDER / "a9a.svm.gz", "test": FOLDER / "a9a.t.svm.gz"}}
