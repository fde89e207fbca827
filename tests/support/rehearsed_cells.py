"""Cells of the matrix of rehearsals on a server named "fake"."""

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
