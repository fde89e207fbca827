"""The Python programs of documents, as tests run them."""

import gzip
import re

import numpy as np

from tests.support.tracked_files import ROOT

DOCS = ROOT / "docs"


def program(package, smaller, page="tuning.md"):
    """The program of `page` that uses `package`, with texts replaced: `smaller`, old to new."""
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.M | re.S)
    (found,) = [block for block in blocks if re.search(rf"^(import|from) {package}\b", block, re.M)]
    for usual, small in smaller.items():
        assert found.count(usual) == 1, f"{page}: expected one {usual}"
        found = found.replace(usual, small)
    return found


def write_table(folder):
    """Write the table that the programs read: 2,000 rows of 5 numbers and one of 3 classes."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(2000, 5)).round(3)
    labels = rows[:, :3].argmax(axis=1)
    with gzip.open(folder / "covtype.csv.gz", "wt") as file:
        file.write("a,b,c,d,e,label\n")
        for row, label in zip(rows, labels, strict=True):
            print(*row, label, sep=",", file=file)
