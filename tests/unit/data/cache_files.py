"""Text files for tests of the data cache, and views of its entries."""

import dataclasses
import gzip

import numpy as np

LONG_AGO = 1_000_000_000  # Unix seconds, the modification time of files in these tests
TEXTS = {
    "a.svm": b"1 1:2 5:0.1\n\n# nothing\n-1 2:3\n",
    "lists.svm": b"1,3 1:2\n 2:3\n7 9:-0.0\n",
    "a.xmc": b"2 30 40\n3,1 1:2\n 2:3\n",
    "a.csv": b"a,b,y\n1,2,0.1\n3,4,1e-3\n",
    "a.svm.gz": gzip.compress(b"1 0:2\n-1 2:3\n"),
    "a.txt": b"1 1:2\n-1 2:3\n",
}


def entries(cache):
    return sorted(cache.directory.glob("*.hogdata"))


def flat(raw):
    """All fields of a RawSet, with arrays as (dtype, shape, bytes)."""
    values = [getattr(raw, field.name) for field in dataclasses.fields(raw)]
    parts = []
    for value in values:
        parts += value if isinstance(value, tuple) else [value]
    return [
        (part.dtype, part.shape, part.tobytes()) if isinstance(part, np.ndarray) else part
        for part in parts
    ]
