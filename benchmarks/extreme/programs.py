"""The programs: functions that train on rows and return a function that ranks labels.

Settings of peers are those of their documentation; where it names several, `GRIDS` has the values
from which the validation rows choose. Packages are imported when they are used.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.extreme import sampled_softmax
from benchmarks.peers.contract import Setting, combine

K: Final = 5  # labels ranked for each row
OVA_LABELS: Final = 2000  # most labels for which fastText trains all of them at each row
THREADS: Final = len(os.sched_getaffinity(0))
HOGBATCH: Final = "hogbatch"

Ranked = NDArray[np.int64]  # [N, K], best first; -1 where a program ranks fewer labels
Rank = Callable[[Any], Ranked]  # of rows x, CSR


class Problem(NamedTuple):
    """Training rows: x float32 CSR [N, F] and y float32 CSR [N, C], or `files` for hogbatch.

    `scratch` is an empty directory.
    """

    x: Any
    y: Any
    scratch: Path
    setting: Setting
    seed: int


class Trained(NamedTuple):
    """A trained program. `exact` ranks by all labels, where `rank` does not."""

    rank: Rank
    exact: Rank | None = None
    seconds: float | None = None  # of training, if the program measures it itself


def hogbatch(problem: Problem) -> Trained:
    """`hogbatch train`, on the training file itself; it divides off its validation rows."""
    run = problem.scratch / "run"
    command = [sys.executable, "-m", "hogbatch.cli.main", "train", *problem.setting["flags"]]
    command += ["--seed", str(problem.seed), "--run-dir", str(run), "--quiet"]
    subprocess.run(command, check=True)
    from hogbatch.model.file import load_model

    model: Any = load_model(run / "model.safetensors")
    seconds = json.loads((run / "summary.json").read_text())["train_seconds"]
    return Trained(lambda x: model.top(x, K), seconds=seconds)


def pecos(problem: Problem) -> Trained:
    """PECOS XR-Linear (Yu et al. 2022, arXiv 2010.05878) as its `train` command does it."""
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    x, y = unit(problem.x), problem.y
    features = LabelEmbeddingFactory.create(y, x, method="pifa")
    tree = Indexer.gen(features, seed=problem.seed, max_leaf_size=100, nr_splits=16, spherical=True)
    model = XLinearModel.train(
        x, y.tocsc(), C=tree, bias=1.0, threshold=0.1, Cp=1.0, Cn=1.0, **problem.setting
    )

    def ranks(beam: int) -> Rank:
        return lambda x: by_score(model.predict(unit(x), beam_size=beam, only_topk=K))

    return Trained(ranks(10), exact=ranks(y.shape[1]))


def napkinxc(problem: Problem) -> Trained:
    """Probabilistic label tree of napkinXC (Jasinska-Kobus et al. 2020, arXiv 2009.11218)."""
    from napkinxc.models import PLT

    model = PLT(str(problem.scratch / "model"), seed=problem.seed, **problem.setting)
    model.fit(problem.x, problem.y)
    model.load()
    return Trained(lambda x: padded(model.predict(x, top_k=K)))


def fasttext(problem: Problem) -> Trained:
    """fastText (Joulin et al. 2017); a word is a feature, as it has no place for values."""
    from fasttext import train_supervised

    labels, text = lines(problem.y, "__label__"), lines(problem.x, "w")
    path = problem.scratch / "train.txt"
    rows = (f"{a} {b}\n" for a, b in zip(labels, text, strict=True) if a)
    path.write_text("".join(rows))
    model = train_supervised(str(path), verbose=0, thread=THREADS, **problem.setting)

    def rank(x: Any) -> Ranked:
        found, _ = model.predict(lines(x, "w"), k=K)
        return padded([int(label.removeprefix("__label__")) for label in row] for row in found)

    return Trained(rank)


def pytorch(problem: Problem) -> Trained:
    """PyTorch with a sampled softmax."""
    model = sampled_softmax.train(problem.x, problem.y, problem.setting, problem.seed)
    return Trained(lambda x: model.top(x, K))


class Program(NamedTuple):
    """A program, its package and module, and the settings from which to choose."""

    train: Callable[[Problem], Trained]
    package: str
    module: str  # imported before the clock starts
    grid: Callable[[int], list[Setting]]  # of the number of labels


def fasttext_grid(labels: int) -> list[Setting]:
    """Defaults, and the values of the tutorial for classification."""
    losses = ("ns", "ova") if labels <= OVA_LABELS else ("ns", "hs")
    return combine(loss=losses, lr=(0.1, 0.5, 1.0), epoch=(5, 25, 50), dim=(100,))


PROGRAMS: Final = {
    "pecos": Program(
        pecos,
        "libpecos",
        "pecos.xmc.xlinear.model",
        lambda _: combine(negative_sampling_scheme=("tfn", "tfn+man")),
    ),
    "napkinxc": Program(napkinxc, "napkinxc", "napkinxc.models", lambda _: [{}]),
    "fasttext": Program(fasttext, "fasttext-wheel", "fasttext", fasttext_grid),
    "pytorch-sampled": Program(pytorch, "torch", "torch", lambda _: sampled_softmax.GRID),
    HOGBATCH: Program(hogbatch, "hogbatch", "hogbatch", lambda _: [{}]),
}


def unit(x: Any) -> Any:
    """Rows of a CSR matrix, divided by their Euclidean norms."""
    norms = np.sqrt(x.multiply(x).sum(axis=1))
    return x.multiply(1 / np.where(norms > 0, norms, 1)).tocsr().astype(np.float32)


def by_score(scores: Any) -> Ranked:
    """The columns of a CSR matrix of scores, in descending order of score."""
    parts = zip(scores.indptr[:-1], scores.indptr[1:], strict=True)
    return padded(scores.indices[a:b][np.argsort(-scores.data[a:b])] for a, b in parts)


def padded(rows: Iterable[Any]) -> Ranked:
    """The first K numbers of each row."""
    return np.array([[*row[:K], *[-1] * (K - len(row))] for row in rows], np.int64)


def lines(matrix: Any, prefix: str) -> list[str]:
    """The columns that each row stores, as words."""
    words = [f"{prefix}{n}" for n in range(matrix.shape[1])]
    parts = np.split(matrix.indices, matrix.indptr[1:-1])
    return [" ".join(words[n] for n in row.tolist()) for row in parts]
