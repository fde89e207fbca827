"""All messages of the control plane.

    worker ─────── Hello, Ready, Done, Heartbeat, Failed, Goodbye ──▶ coordinator
    coordinator ── Welcome, Lease, Stop, Refused ──────────────▶ worker

With several servers, each of them is a worker of the coordinator of all, and their models are
merged:

    server ─────── Collected, Connected, Reduced, Applied, Loaded ──▶ coordinator
    coordinator ── Servers, Collect, Reduce, Apply, UseModel, UseMean ──▶ server

A server also tells about its own workers, for display only (ServerWorkers).

Most messages are a few dozen bytes. They contain no arrays: those are in shared memory
(:mod:`hogbatch.store`), and a message names the rows to process.
"""

from typing import Annotated, Final, Literal

import msgspec

from hogbatch.config.augmentation import Augmentation
from hogbatch.config.layers import DenseLayer
from hogbatch.config.lsh import Lsh
from hogbatch.config.sets import SetName

# Bounds are part of the protocol: the decoder rejects numbers outside them, so no other code has
# to handle a negative count or a NaN.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Amount = Annotated[float, msgspec.Meta(ge=0.0, le=1e300)]
Sum = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
ExtraWeight = Annotated[float, msgspec.Meta(ge=-(2.0**53), le=1e300)]
NoiseSums = tuple[Amount, Sum, Amount, Sum, Sum]  # see hogbatch.policy.noise_scale
BatchRows = Annotated[int, msgspec.Meta(ge=1, le=2**40)]
Measured = Annotated[float, msgspec.Meta(gt=0.0, le=1e6)]  # seconds
Pause = Annotated[float, msgspec.Meta(ge=0.0, le=1e6)]  # seconds
ShortText = Annotated[str, msgspec.Meta(max_length=1000)]
# Under which other servers will write to the memory of a server when they are connected next.
PlaneAddress = Annotated[bytes, msgspec.Meta(max_length=1 << 14)]
OptionalNumber = Annotated[int, msgspec.Meta(ge=-1, le=1 << 20)]  # of a server; -1: none
Fraction = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
WorkerText = Annotated[str, msgspec.Meta(max_length=64)]  # name, device or state of a worker
Threads = Annotated[int, msgspec.Meta(ge=1, le=4096)]

# The numbers of parts of divided data, from 0; a frame has room for MAX_PARTS of them.
MAX_PARTS: Final = 1 << 14
Parts = Annotated[
    tuple[Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)], ...], msgspec.Meta(max_length=MAX_PARTS)
]

MAX_LISTED: Final = 16  # workers in a message about the workers of a server


class Message(
    msgspec.Struct,
    frozen=True,
    array_like=True,
    tag=str.lower,
    forbid_unknown_fields=True,
    gc=False,
):
    """Base of every message; encoded as a msgpack array that starts with the message's tag."""


class Optimizer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The optimizer's name and constants; each Lease contains the learning rate."""

    name: str
    l2: float
    momentum: float  # also Adam's beta1
    beta2: float
    epsilon: float
    warm_up: float = 0.0  # updates


class Hello(Message, frozen=True):
    """The worker has mapped the shared memory and asks to join the run."""

    device: Literal["cpu", "gpu", "server"]
    name: ShortText  # device, for display: "cpu:2", "gpu:0", "gpu:host"; of a server its host
    threads: Threads
    pid: Count
    package: ShortText  # version of hogbatch
    fingerprint: ShortText  # of the dataset it mapped
    parts: Parts = ()  # of divided data that a server holds, in ascending order


class Ready(Message, frozen=True):
    """The worker's kernels are compiled and it can receive work.

    `profile` has measured pairs of (rows per batch, seconds), or is empty.
    """

    profile: tuple[tuple[BatchRows, Measured], ...] = ()
    teams: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 1  # batches computed at the same time
    members: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 1  # threads that compute each batch
    merge: tuple[Pause, Pause] = (0.0, 0.0)  # seconds of a merge: not training; in background
    address: PlaneAddress = b""  # of a server
    plane: ShortText | None = None  # by which a server moves its changes, for display


class Done(Message, frozen=True):
    """A lease is finished and its updates are in the shared model. (The paper's ScheduleWork.)"""

    lease: Count
    rows: Count
    updates: Count
    seconds: Amount  # computing time, mean over the worker's threads, excluding the wait for work
    loss: Amount  # summed over the rows, like metric_sums multiplied by their weights
    skipped: Count  # rows skipped by the finite-gradient guard
    metric_sums: tuple[Amount, ...]  # evaluation only; see hogbatch.config.losses
    staleness: Amount = 0.0  # updates by other workers between pull and merge, mean over merges
    refused: Count = 0  # rejected merges with NaN or Inf; their rows count as skipped
    active: Amount = 0.0  # active outputs of a hashed output layer, mean over updates
    too_large: Count = 0  # batch size that did not fit into the device's memory, 0 if all did;
    # then `rows` counts from the start of the lease, and the remaining rows are returned
    skipped_row: Count = 0  # 1 + the number of a row that the guard skipped; 0: none skipped
    merge_seconds: Amount = 0.0  # during which merges kept a GPU from training
    transferred: Count = 0  # bytes copied between host and device, in both directions
    transfer_seconds: Amount = 0.0  # duration of these copies, some of them during training
    extra_weight: ExtraWeight = 0.0  # weight - 1, summed over the rows that were not skipped
    noise: NoiseSums | None = None  # of rows whose gradients were measured; None: of no rows


class Heartbeat(Message, frozen=True):
    """The worker is alive; sent after `Welcome.beat_seconds` without another message.

    It is also sent while the worker computes.
    """

    compiling: bool = False  # before Ready: kernels are compiled, not loaded from the cache


class Failed(Message, frozen=True):
    """The worker cannot continue. `reason` is for display only."""

    reason: ShortText


class Goodbye(Message, frozen=True):
    """The worker leaves the run; its unreported leases are returned."""


class Collected(Message, frozen=True):
    """A server has copied the change of its model since the last merge (answers Collect)."""

    merge: Count
    leases: Count  # training leases that it had finished: their updates are in the change
    updates: Count  # since the last copy
    batch_size: Count  # rows, mean over these updates
    finite: bool  # whether all parameters are
    squares: tuple[Amount, ...] = ()  # squared norms of the change, one for each tensor


class Connected(Message, frozen=True):
    """A server is connected with the others (answers Servers), except one that it cannot reach."""

    version: Count
    address: PlaneAddress  # for the next time
    unreachable: OptionalNumber = -1


class Reduced(Message, frozen=True):
    """A server has the sum of all changes (answers Reduce).

    Not if another one cannot be reached, or if it has `collected` a change that is not finite.
    """

    merge: Count
    attempt: Count
    unreachable: OptionalNumber = -1
    squares: tuple[Amount, ...] = ()  # squared norms of the sum, one for each tensor
    collected: Collected | None = None  # if Reduce has asked for it


class Applied(Message, frozen=True):
    """A server has merged the sum into its model (answers Apply)."""

    merge: Count
    seconds: Amount  # from Collect to now, in which it trained on
    cpu_seconds: Amount = 0.0  # of the thread that merges, in this time


class Loaded(Message, frozen=True):
    """A server has begun to use the model that was written to its memory (answers UseModel)."""

    changed: bool = True  # the parameters are others than before


class WorkerFigures(msgspec.Struct, frozen=True, gc=False):
    """One worker of a server, and what it has done so far; also part of an event."""

    name: WorkerText  # among the workers of its server
    device: WorkerText  # "cpu" or "gpu"
    threads: Threads
    batch_size: Count  # 0: not known yet
    rows: Count
    updates: Count
    busy: Fraction  # of its training seconds spent computing
    state: WorkerText  # "starts", "compiles", "trains", "parked" or "left"


class ServerWorkers(Message, frozen=True):
    """The workers of a server, for display; sent in place of some Heartbeats if they change."""

    workers: Annotated[tuple[WorkerFigures, ...], msgspec.Meta(max_length=MAX_LISTED)] = ()
    others: Count = 0  # workers that are not listed


class Welcome(Message, frozen=True):
    """The worker is accepted, with the network and how it is trained."""

    layers: tuple[DenseLayer, ...]
    loss: str
    optimizer: Optimizer
    merge: str
    merge_every: int  # batches between merges; 0: automatic, merging takes a tenth of the time
    staleness_damping: str  # a rule of hogbatch.store.merge.stale_weight
    precision: str  # of a GPU's matrix products: float32, tf32, bfloat16
    lsh: Lsh | None = None  # how CPU workers select outputs of an output-major output layer
    beat_seconds: float = 1.0  # maximum time between two messages of a worker
    cpu_teams: int = 0  # teams of each CPU worker; 0: automatic
    label_smoothing: float = 0.0  # see hogbatch.kernels.contract.smoothed
    dropout: float = 0.0  # fraction of the outputs of hidden layers
    augmentation: Augmentation | None = None  # of pictures
    seed: int = 0  # of the random numbers of dropout
    backbone: str = ""  # layers below `layers`, in the notation of hogbatch.config.backbone
    worker: int = 0  # index of its fence line
    name: str = ""


class Lease(Message, frozen=True):
    """Process rows [start, stop). (The paper's ExecuteWork.)

    For the task "train" these are positions in the order of `epoch`. Otherwise they are rows of the
    set that the task names, on which the model is evaluated.
    """

    number: int  # as in Done.lease
    task: SetName
    epoch: int
    start: int
    stop: int
    batch_size: int
    learning_rate: float
    fence: int  # the worker may write while its fence line has this value
    rollbacks: int = 0  # of the model so far; when it changes, workers must discard copies of it
    merge_every: int = 0  # batches between two merges of a GPU; 0: as the worker finds suitable
    weight: float = 1.0  # of a GPU's changes when they are merged


class Stop(Message, frozen=True):
    """The worker must exit; no more messages follow."""


class Refused(Message, frozen=True):
    """The worker is not accepted; `reason` is a different version, different data or a full run."""

    reason: str


class Servers(Message, frozen=True):
    """Connect with these servers; those of earlier messages can no longer write here."""

    version: int
    numbers: tuple[int, ...]  # as in Welcome.worker, with the receiver's own
    addresses: tuple[bytes, ...]


class Collect(Message, frozen=True):
    """Copy the change of the model since the last merge."""

    merge: int


class Reduce(Message, frozen=True):
    """Sum the changes of some servers, each with its weight."""

    merge: int
    attempt: int  # increases when a server was lost in the attempt before
    numbers: tuple[int, ...]  # of the servers, in the order of the ring
    weights: tuple[float, ...]  # of their changes
    collect: bool = False  # copy the change first, as for Collect


class Apply(Message, frozen=True):
    """Merge the sum into the model."""

    merge: int
    sample: bool  # whether the merged model is a sample of the moving mean
    scales: tuple[float, ...] = ()  # of the sum, one for each tensor; empty: 1


class UseModel(Message, frozen=True):
    """Begin to use the model that was written to the server's memory."""


class UseMean(Message, frozen=True):
    """Replace the model by its moving mean, for an evaluation, or restore it."""

    used: bool


ToServer = Servers | Collect | Reduce | Apply | UseModel | UseMean
FromServer = Collected | Connected | Reduced | Applied | Loaded
ToWorker = Welcome | Lease | Stop | Refused | ToServer
ToCoordinator = Hello | Ready | Done | Heartbeat | Failed | Goodbye | ServerWorkers | FromServer
