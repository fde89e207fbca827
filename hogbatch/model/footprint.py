"""How much memory a run takes, and for what: arithmetic on the sizes of its data and its model.

Every number is an upper bound of what is allocated, in bytes; what is small whatever the data
and the model are (interpreter, libraries, compiled kernels) is in `PROCESS`. A result is a mapping
from what memory is for, in words for people, to bytes.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.lsh import Lsh
from hogbatch.config.values import WorkerRequest
from hogbatch.machine.budget import byte_size, require
from hogbatch.model.network import Network
from hogbatch.store.fence import Fences
from hogbatch.store.layout import stored_width

Parts = Mapping[str, int]

FLOAT = 4  # bytes of a parameter
LARGE = 1 << 29  # bytes of a model and its slots of which no snapshot is kept in memory
SNAPSHOTS = 2  # of a smaller model: the last one, and the one that is being made
WRITTEN = 1  # copy of the same that a checkpoint is being written of
EVALUATED = 256  # rows of an evaluation batch on a CPU thread
PROCESS = 120_000_000  # bytes of a worker process, with compiled kernels and without any data
SHOWN = 0.02  # share of all memory from which on a part is named
ADVICE = (
    "use fewer features, a smaller network (--hidden) or fewer workers and threads (--workers), or "
    "end other programs"
)


@dataclass(frozen=True, slots=True)
class Problem:
    """What the memory of a run depends on."""

    network: Network
    slots: int  # of the optimizer, for every parameter
    data: int  # bytes of the training and the test set
    rows: int  # N of the training set
    sparse: bool  # whether inputs are CSR
    batch: int = EVALUATED  # most rows of a batch on a CPU thread
    stored: int = 0  # most stored values of such a batch; 0 for dense inputs
    labels: int = 0  # most labels of such a batch
    lsh: Lsh | None = None  # how the output layer is hashed

    @property
    def model(self) -> int:
        """Bytes of the parameters."""
        return FLOAT * self.network.parameters

    @property
    def state(self) -> int:
        """Bytes of the optimizer's slots."""
        return self.slots * self.model

    @property
    def first_layer(self) -> int:
        """Bytes of the weights of the first layer."""
        return FLOAT * math.prod(self.network.tensors()[0].stored)

    @property
    def outputs(self) -> int:
        """Bytes of the weights and biases of the last layer."""
        return FLOAT * sum(math.prod(tensor.stored) for tensor in self.network.tensors()[-2:])

    @property
    def state_of_a_thread(self) -> int:
        """Bytes of the slots of dense layers, which every CPU thread but the first has of its own.

        Those of a sparse input layer and of a hashed output layer are shared.
        """
        shared = self.first_layer if self.sparse else 0
        shared += self.outputs if self.lsh is not None else 0
        return self.slots * max(0, self.model - shared)


def most_listed(indptr: NDArray[np.int64], batch: int) -> int:
    """An upper bound of the cells that `batch` rows of a CSR matrix have together."""
    if not len(indptr):
        return 0
    return min(int(indptr[-1]), batch * int(np.diff(indptr).max(initial=0)))


def segments(problem: Problem) -> Parts:
    """The two segments that all processes of a run share."""
    lines, words = Fences.fields()["fences"][1]
    return {
        "data": problem.data,
        "model": problem.model,
        "optimizer state": problem.state,
        "orders of the rows": 16 * problem.rows + 8 * lines * words,
    }


def coordinator(problem: Problem, *, checkpoints: bool, average: bool) -> Parts:
    """What the coordinator allocates besides, while training goes on."""
    both = problem.model + problem.state
    copies = problem.model * (1 + average)  # the best so far, and the mean
    if both <= LARGE:
        copies += both * (SNAPSHOTS + WRITTEN * checkpoints) + problem.model * checkpoints
    return {"copies of the model": copies, "orders of the rows": 8 * problem.rows}


def cpu_worker(problem: Problem, threads: int) -> Parts:
    """What a CPU worker allocates for itself."""
    parts = {
        "optimizer state of single threads": (threads - 1) * problem.state_of_a_thread,
        "working memory of threads": (threads + 1) * _working_memory(problem),
        "processes": PROCESS,
    }
    if problem.lsh is not None:
        parts["hash tables"] = _hash_tables(problem.lsh, problem.network.outputs, threads)
    return parts


def gpu_worker(problem: Problem, *, on_host: bool) -> Parts:
    """What a GPU worker allocates in the memory of the host.

    On a real GPU that is where changes land; `on_host`, where NumPy stands in for a GPU, it is
    the replica, its gradient, what travels, and the data too.
    """
    landing = problem.model + (problem.first_layer if problem.sparse else 0)
    if not on_host:
        return {"replicas": 2 * landing, "processes": 4 * PROCESS}
    replica = problem.model + problem.state
    travelling = 4 * landing  # what it began with, what changed, what was pulled, and on trial
    gradient = 4 * (problem.model - (problem.first_layer if problem.sparse else 0))  # with NumPy's
    return {
        "replicas": replica + travelling + landing + gradient,
        "copies of the data": problem.data + 16 * problem.rows,
        "processes": PROCESS,
    }


def whole_run(
    problem: Problem, workers: Iterable[WorkerRequest], *, checkpoints: bool, average: bool
) -> Parts:
    """What a run takes beyond its data as they were read, with the `workers` that it starts.

    The data as they were read are given up when they have been copied to their segment, before
    most of the rest is allocated: of the two moments, the one that takes more counts.
    """
    shared = segments(problem)
    rest = [coordinator(problem, checkpoints=checkpoints, average=average)]
    for worker in workers:
        if worker.device == "cpu":
            rest.append(cpu_worker(problem, worker.threads or 1))
        else:
            rest.append(gpu_worker(problem, on_host=worker.ordinal == "host"))
    later = add([{**shared, "data": 0}, *rest])
    return max((shared, later), key=total)


def add(each: Iterable[Parts]) -> Parts:
    """The sums of parts with the same name."""
    sums: dict[str, int] = {}
    for parts in each:
        for name, size in parts.items():
            sums[name] = sums.get(name, 0) + size
    return sums


def total(parts: Parts) -> int:
    """Bytes of all parts."""
    return sum(parts.values())


def expect_room(parts: Parts, purpose: str) -> None:
    """UsageError with the `parts` unless there is as much memory as they take together."""
    require(total(parts), f"{purpose} ({describe(parts)})", ADVICE)


def describe(parts: Parts) -> str:
    """The parts that matter, the largest first: "model 6.4 GB, optimizer state 6.4 GB"."""
    least = SHOWN * total(parts)
    large = sorted(
        ((name, size) for name, size in parts.items() if size >= least and size),
        key=lambda part: -part[1],
    )
    return ", ".join(f"{name} {byte_size(size)}" for name, size in large)


def _working_memory(problem: Problem) -> int:
    """Bytes that one CPU thread needs for its batches."""
    network, hashed = problem.network, problem.lsh is not None
    *below, last = [stored_width(layer.width) for layer in network.layers]
    output_major = network.layers[-1].output_major
    widths = below if output_major else [*below, last]
    dense = 0 if problem.sparse else stored_width(network.features)
    widest = max([dense, *widths], default=1)
    # Activations, two gradients, and the scratch of a backward pass (kernels/cpu/network.py).
    cells = max(problem.batch, EVALUATED) * (dense + sum(widths) + 4 * widest)
    cells += 48 * (max(problem.batch, EVALUATED) + widest)
    if output_major:
        active = problem.labels + problem.lsh.most + problem.lsh.random if problem.lsh else last
        active = min(active, last + problem.labels)
        gathered = 2 * active * stored_width(network.layers[-1].fan_in) if hashed else 0
        cells += gathered + 2 * problem.batch * active + 12 * active
    cells += 3 * problem.stored  # linked occurrences of features
    return FLOAT * (cells + network.features)  # a list begins at each feature


def _hash_tables(lsh: Lsh, neurons: int, threads: int) -> int:
    """Bytes of two sets of hash tables, and of what they are built from and asked with."""
    buckets = lsh.tables << lsh.bits
    sets = 2 * FLOAT * buckets * (lsh.bucket + 1)
    codes = FLOAT * neurons * (lsh.tables + 16 + 1) + neurons  # with sketches and lengths
    building = (8 + 8 + 8 + 4) * neurons  # ids and their order, in 8 bytes and in 4
    met = min(lsh.tables * lsh.bucket, neurons)
    thread = neurons * (FLOAT + 1) + 3 * FLOAT * met
    return sets + codes + building + threads * thread
