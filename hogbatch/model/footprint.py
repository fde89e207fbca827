"""The memory that a run needs: arithmetic on the sizes of its data and its model.

Every number is an upper bound of an allocation, in bytes. Allocations that do not depend on data
and model (interpreter, libraries, compiled kernels) are included in `PROCESS`. The results map
purposes of memory, as shown in messages, to bytes.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hogbatch.config.lsh import Lsh
from hogbatch.config.values import WorkerRequest
from hogbatch.machine.budget import byte_size, require
from hogbatch.model.label_vectors import CELLS, VALUES
from hogbatch.model.network import Network
from hogbatch.store import row_scores
from hogbatch.store.fence import Fences
from hogbatch.store.layout import arrange, stored_width

Parts = Mapping[str, int]

FLOAT = 4  # bytes of a parameter
LARGE = 1 << 29  # bytes of a model with its slots; no snapshot is kept of larger ones
SNAPSHOTS = 2  # copies of smaller models: the last snapshot, and the next one
CHECKPOINT_COPIES = 1  # one more copy, from which a checkpoint is written
EVALUATION_ROWS = 256  # rows of an evaluation batch on a CPU thread
TEAM_ROWS = 512  # rows of the largest batch that a team of threads has by default
PROCESS = 120_000_000  # bytes of a worker process with compiled kernels, without data
MIN_SHOWN = 0.02  # minimum fraction of all memory for a part to be named
ADVICE = (
    "use fewer features, a smaller network (--hidden) or fewer workers and threads (--workers), or "
    "close other programs"
)


@dataclass(frozen=True, slots=True)
class RunSizes:
    """The sizes on which the memory of a run depends."""

    network: Network
    slots: int  # optimizer slots per parameter
    data: int  # bytes of all sets of rows
    rows: int  # N of the training set
    sparse: bool  # whether inputs are CSR
    batch: int = EVALUATION_ROWS  # maximum rows of a batch on a CPU thread
    stored: int = 0  # maximum stored values of such a batch; 0 for dense inputs
    labels: int = 0  # maximum labels of such a batch
    lsh: Lsh | None = None  # settings of a hashed output layer
    evaluated: int = 0  # rows of the largest set whose scores are kept
    described: int = 0  # maximum labels that have a label vector
    near: int = 0  # maximum values of the vectors and lists of nearest rows

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
    def thread_state(self) -> int:
        """Bytes of the slots that each CPU thread except the first has of its own.

        These are the slots of dense layers. Those of a sparse input layer and of a hashed output
        layer are shared.
        """
        shared = self.first_layer if self.sparse else 0
        shared += self.outputs if self.lsh is not None else 0
        return self.slots * max(0, self.model - shared)


def segments(sizes: RunSizes) -> Parts:
    """Return the memory of the two segments that all processes of a run share."""
    lines, words = Fences.fields()["fences"][1]
    return {
        "data": sizes.data,
        "model": sizes.model,
        "optimizer state": sizes.state,
        "row orders": 16 * sizes.rows + 8 * lines * words,
        "scores": arrange(row_scores.fields(sizes.evaluated, sizes.network.outputs)).size,
    }


def coordinator(sizes: RunSizes, *, checkpoints: bool, average: bool) -> Parts:
    """Return the memory that the coordinator allocates during training."""
    both = sizes.model + sizes.state
    copies = sizes.model * (1 + average)  # the best model so far, and the mean
    if both <= LARGE:
        copies += both * (SNAPSHOTS + CHECKPOINT_COPIES * checkpoints) + sizes.model * checkpoints
    return {"copies of the model": copies, "row orders": 8 * sizes.rows}


def cpu_worker(sizes: RunSizes, threads: int, teams: int | None = None) -> Parts:
    """Return the memory that a CPU worker allocates for its threads, in so many teams.

    `teams` None: it is not known whether threads are in teams; then each has slots of its own.
    """
    working = (threads + 1) * _working_memory(sizes)
    if teams is not None and teams < threads:
        dense = 0 if sizes.sparse else stored_width(sizes.network.features)
        widths = dense + sum(stored_width(layer.width) for layer in sizes.network.layers)
        # Activations and their gradients, which the threads of a team share.
        working += teams * 2 * FLOAT * max(sizes.batch, TEAM_ROWS) * widths
    parts = {
        "optimizer state of threads": ((teams or threads) - 1) * sizes.thread_state,
        "working memory of threads": working,
        "processes": PROCESS,
    }
    if sizes.lsh is not None:
        parts["hash tables"] = _hash_tables(sizes.lsh, sizes.network.outputs, threads)
    return parts


def gpu_worker(sizes: RunSizes, *, on_host: bool) -> Parts:
    """Return the memory that a GPU worker allocates on the host.

    With a GPU, these are a buffer for changes of the model, if the host merges them, and memory to
    measure merges in. `on_host`, where NumPy replaces the GPU, these are also the replica, its
    gradient, the copies that merging needs, and the data.
    """
    change = sizes.model + (sizes.first_layer if sizes.sparse else 0)
    if not on_host:
        return {"replicas": 2 * change, "processes": 4 * PROCESS}
    replica = sizes.model + sizes.state
    merging = 5 * change  # two bases, change and pulled parameters; and memory to measure in
    # With the temporary arrays of NumPy.
    gradient = 4 * (sizes.model - (sizes.first_layer if sizes.sparse else 0))
    return {
        "replicas": replica + merging + gradient,
        "copies of the data": sizes.data + 16 * sizes.rows,
        "processes": PROCESS,
    }


def label_vectors(sizes: RunSizes) -> Parts:
    """Return the memory that label vectors, nearest rows, and ranking need after training.

    The model has been copied. While vectors are sorted by feature, a value takes 48 bytes: 12
    in the part of a thread, 12 in all parts joined, 8 in the result, and 16 for the sort.
    """
    if not sizes.described:
        return {}
    values = VALUES * sizes.described
    built = max(48 * values, 8 * values + 48 * sizes.near)
    return {
        "copies of the model": sizes.model,
        "label vectors": built + FLOAT * (CELLS + sizes.network.outputs),
        "processes": PROCESS,
    }


def whole_run(
    sizes: RunSizes, workers: Iterable[WorkerRequest], *, checkpoints: bool, average: bool
) -> Parts:
    """Return the memory that a run needs in addition to the data as read, with its `workers`.

    The data as read are freed once they have been copied to their segment, before most of the rest
    is allocated, and label vectors are added when the workers have ended. The result is the largest
    of the amounts needed before, during and after training.
    """
    shared, rest = segments(sizes), []
    for worker in workers:
        if worker.device == "cpu":
            rest.append(cpu_worker(sizes, worker.threads or 1))
        else:
            rest.append(gpu_worker(sizes, on_host=worker.ordinal == "host"))
    later = {**shared, "data": 0}, coordinator(sizes, checkpoints=checkpoints, average=average)
    needs = shared, add([*later, *rest]), add([*later, label_vectors(sizes)])
    return max(needs, key=total)


def add(each: Iterable[Parts]) -> Parts:
    """Add up parts of the same name."""
    return sum(map(Counter, each), Counter[str]())


def total(parts: Parts) -> int:
    """Return the bytes of all parts."""
    return sum(parts.values())


def expect_memory(parts: Parts, purpose: str) -> None:
    """Raise a UsageError that names the `parts` unless memory for all of them is available."""
    require(total(parts), f"{purpose} ({describe(parts)})", ADVICE)


def describe(parts: Parts) -> str:
    """Name the large parts, the largest first: "model 6.4 GB, optimizer state 6.4 GB"."""
    minimum = MIN_SHOWN * total(parts)
    large = [each for each in Counter(parts).most_common() if each[1] >= minimum and each[1]]
    return ", ".join(f"{name} {byte_size(size)}" for name, size in large)


def _working_memory(sizes: RunSizes) -> int:
    """Return the bytes that one CPU thread needs for its batches."""
    network, hashed = sizes.network, sizes.lsh is not None
    *below, last = [stored_width(layer.width) for layer in network.layers]
    output_major = network.output_major
    widths = below if output_major else [*below, last]
    dense = 0 if sizes.sparse else stored_width(network.layers[0].fan_in)
    widest = max([dense, *widths], default=1)
    if network.backbone is not None:  # values and gradients of its layers
        dense += network.features + sum(layer.values for layer in network.backbone.layers)
    # Activations, gradients, and scratch of the backward pass (kernels/cpu/network.py).
    cells = max(sizes.batch, EVALUATION_ROWS) * 2 * (dense + sum(widths) + widest)
    cells += 48 * (max(sizes.batch, EVALUATION_ROWS) + widest)
    if output_major:
        active = sizes.labels + sizes.lsh.most + sizes.lsh.random if sizes.lsh else last
        active = min(active, last + sizes.labels)
        gathered = 2 * active * stored_width(network.layers[-1].fan_in) if hashed else 0
        cells += gathered + 2 * sizes.batch * active + 12 * active
    cells += 3 * sizes.stored  # occurrences of features, in linked lists
    return FLOAT * (cells + network.features)  # heads of these lists


def _hash_tables(lsh: Lsh, outputs: int, threads: int) -> int:
    """Return the bytes of two sets of hash tables, and of the arrays to build and use them."""
    buckets = lsh.tables << lsh.bits
    sets = 2 * FLOAT * buckets * (lsh.bucket + 1)
    codes = FLOAT * outputs * (lsh.tables + 16 + 1) + outputs  # with sketches and lengths
    building = (8 + 8 + 8 + 4) * outputs  # ids, and their order in int64 and int32
    found = min(lsh.tables * lsh.bucket, outputs)
    thread = outputs * (FLOAT + 1) + 2 * FLOAT * found
    return sets + codes + building + threads * thread
