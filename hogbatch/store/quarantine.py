"""Rows that have killed three workers: recorded in a file and left out of later epochs."""

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

NAME = "bad-leases.jsonl"


class QuarantinedRows:
    """Row numbers of the training set, in the order in which they were quarantined."""

    def __init__(self, run_dir: Path, rows: Sequence[int] = ()) -> None:
        self.rows = list(rows)
        self._path = run_dir / NAME

    def add(self, order: NDArray[np.int64], epoch: int, start: int, stop: int) -> None:
        """Record rows [start, stop) of the `order`[N] of `epoch`.

        If the disk is full, only the line in the file is lost.
        """
        rows = [int(row) for row in order[start:stop]]
        self.rows += rows
        note = {"at": round(time.time(), 4), "epoch": epoch, "start": start, "stop": stop}
        with suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**note, "rows": rows}) + "\n")
