"""Cells of the matrix of rehearsals on a server named "fake", and results as they store them."""

import math
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.common.job import WITHIN_S
from benchmarks.common.result_store import ResultStore
from benchmarks.common.servers import Processors
from benchmarks.rehearsals.cell import Cell
from benchmarks.rehearsals.matrix import Limits, Matrix
from benchmarks.rehearsals.methods import KINDS
from benchmarks.rehearsals.search import Batches, Place
from hogbatch.data import samples
from tests.support import fake_rehearsal

SAMPLES = Path(samples.__file__).parent
FAKE = (sys.executable, fake_rehearsal.__file__, "rehearse")
BOTH = Processors(4, 4, ("0",))
SMT = Processors(56, 28, ("0", "1"))
BATCHES = {"cpu": Batches([64]), "gpu": Batches([512]), "gpus": Batches([512])}
SERVER = "fake"


def wanted(seeds=(0,), set_name="a9a"):
    """The cells of all methods on one set, five for each seed."""
    place = Place(set_name, SERVER, BOTH, KINDS, BATCHES)
    chosen = [*place.first(), *place.together()]
    return [Cell(set_name, SERVER, method, seed) for seed in seeds for method in chosen]


def matrix(tmp_path, **changed):
    """A matrix that runs `fake_rehearsal`, with these limits changed."""
    limits = replace(Limits(within=5.0, jobs=2, budget_s=math.inf, cell_s=WITHIN_S), **changed)
    return Matrix(SAMPLES, ResultStore(tmp_path / "cells"), limits, FAKE)


def run(made, chosen):
    """Run the missing cells; return (cells left, results in the order in which they ended)."""
    shown = []
    left = made.run(made.load(chosen), lambda result, rest: shown.append(result))
    return left, shown


def result(method, late=None, early=None, kind=None, seed=0, error=None, **other):
    """The result of a cell."""
    rows = other.pop("rows", 10_000)
    reached = {
        name: None if at is None else {"seconds": at, "rows": rows}
        for name, at in (("early", early), ("late", late))
    }
    made = {"set": "w8a", "server": SERVER, "method": method, "seed": seed, "error": error}
    made |= {"kind": kind or method.partition("-")[0], "reached": reached, "rows": rows}
    made |= {"wall_s": 4.0, "rough_wall_s": 16.0, "train_seconds": late or 9.0}
    return made | {"devices": {"cpu": None, "gpu": None}} | other
