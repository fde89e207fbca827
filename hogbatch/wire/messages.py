"""What crosses the control plane, and nothing else.

    worker ─────── Hello, Ready, Done, Heartbeat, Failed, Goodbye ──▶ coordinator
    coordinator ── Welcome, Work, Stop, Refused ───────────────▶ worker

A message is some dozens of bytes. Arrays never travel: they lie in shared memory
(:mod:`hogbatch.store`), and a message names the rows to work on. Each docstring is what the
sender says.
"""

from typing import Annotated, Literal

import msgspec

from hogbatch.config.lsh import Lsh
from hogbatch.model.layers import Layer, layer_from

# Bounds are part of the protocol: a number outside them is refused by the decoder, so nothing
# behind it ever meets a negative count or a NaN.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Amount = Annotated[float, msgspec.Meta(ge=0.0, le=1e300)]
Text = Annotated[str, msgspec.Meta(max_length=1000)]


class Message(
    msgspec.Struct,
    frozen=True,
    array_like=True,
    tag=str.lower,
    forbid_unknown_fields=True,
    gc=False,
):
    """Base of every message; on the wire a msgpack array led by its tag."""


def decode_layer(expected: type, fields: object) -> Layer:
    """Return the layer that a message describes; msgspec calls this for every field of type Layer.

    msgspec distinguishes only its own Structs by a tag, and ignores unknown fields of a dataclass,
    so the kind and the fields are checked by `layer_from`. msgspec turns its UsageError, a
    ValueError, into a ValidationError that names the place in the message.
    """
    if expected is not Layer:
        raise NotImplementedError(f"messages cannot contain {expected.__name__}")
    return layer_from(fields)


class Optimizer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The optimizer by name, with its constants; the learning rate comes with each Work."""

    name: str
    l2: float
    momentum: float  # Adam's beta1 too
    beta2: float
    epsilon: float


class Hello(Message, frozen=True):
    """I have mapped your shared memory; take me in."""

    device: Literal["cpu", "gpu"]
    name: Text  # what it runs on, for people: "cpu:2", "gpu:0", "gpu:host"
    threads: Annotated[int, msgspec.Meta(ge=1, le=4096)]
    pid: Count
    package: Text  # version of hogbatch
    fingerprint: Text  # of the dataset it mapped


class Ready(Message, frozen=True):
    """Kernels are compiled and warm; send work. Rows per batch with seconds, if measured."""

    profile: tuple[tuple[Count, Amount], ...]


class Done(Message, frozen=True):
    """The lease is done; its updates are in the shared model. (The paper's ScheduleWork.)"""

    lease: Count
    rows: Count
    updates: Count
    seconds: Amount  # computing, mean over the worker's threads, without the wait for work
    loss: Amount  # summed over the rows
    skipped: Count  # rows refused by the finite-gradient guard
    metric_sums: tuple[Amount, ...]  # evaluation only; see hogbatch.model.losses
    staleness: Amount = 0.0  # updates of others between pull and merge, mean over its merges
    refused: Count = 0  # merges whose change was not finite; their rows count as skipped
    active: Amount = 0.0  # neurons of a hashed output layer that were computed, mean over updates
    too_large: Count = 0  # rows of a batch that the device had no memory for, 0 if all fitted;
    # then `rows` counts from the start of the lease, and the rest is yours again
    skipped_row: Count = 0  # 1 + the number of a row that the guard refused, 0 if it refused none


class Heartbeat(Message, frozen=True):
    """I am alive. Sent when nothing else was for `Welcome.beat_seconds`, also while computing."""

    compiling: bool = False  # before Ready: kernels are compiled, not loaded from the cache


class Failed(Message, frozen=True):
    """I cannot go on. `reason` is for people, not for code."""

    reason: Text


class Goodbye(Message, frozen=True):
    """I leave; what I was given and have not reported is yours again."""


class Welcome(Message, frozen=True):
    """You are worker number `worker`, called `name`; this is the network."""

    run: str
    worker: int  # its line among the fences
    name: str
    layers: tuple[Layer, ...]
    loss: str
    optimizer: Optimizer
    merge: str
    merge_every: int  # batches between two merges; 0: so that merging takes a tenth of the time
    staleness_damping: float | str  # beta of e^(-beta tau), or root, auto, off
    precision: str  # of a GPU's products: float32, tf32, bfloat16
    lsh: Lsh | None = None  # how CPU workers find neurons of an output layer that lies by neuron
    beat_seconds: float = 1.0  # say Heartbeat when you have said nothing for so long


class Work(Message, frozen=True):
    """Do rows [start, stop). (The paper's ExecuteWork.)

    For "train" they are positions in the order of `epoch`, for "evaluate" rows of the test set.
    """

    lease: int
    task: Literal["train", "evaluate"]
    epoch: int
    start: int
    stop: int
    batch_size: int
    learning_rate: float
    fence: int  # the worker may write as long as its fence line shows this value
    rollbacks: int = 0  # of the model so far; after another, whatever was copied is to be forgotten


class Stop(Message, frozen=True):
    """Leave now; nothing more will come."""


class Refused(Message, frozen=True):
    """I do not take you in, with the reason: other version, other data, no room."""

    reason: str


ToWorker = Welcome | Work | Stop | Refused
ToCoordinator = Hello | Ready | Done | Heartbeat | Failed | Goodbye
