"""One message of every type, for tests of the wire package."""

from hogbatch.config.layers import DenseLayer
from hogbatch.config.lsh import defaults
from hogbatch.wire.messages import (
    Applied,
    Apply,
    Collect,
    Collected,
    Connected,
    Done,
    Failed,
    Goodbye,
    Heartbeat,
    Hello,
    Lease,
    Loaded,
    Optimizer,
    Ready,
    Reduce,
    Reduced,
    Refused,
    Servers,
    ServerWorker,
    ServerWorkers,
    Stop,
    UseMean,
    UseModel,
    Welcome,
)

LARGEST = 2**53
DONE = Done(
    lease=70_000,
    rows=4096,
    updates=64,
    seconds=0.0123,
    loss=1234.5,
    skipped=3,
    metric_sums=(12.0, 0.5),
    staleness=2.5,
    refused=1,
    active=1500.5,
    too_large=16_384,
    skipped_row=8125,
    merge_seconds=0.002,
    transferred=80_000_000,
    transfer_seconds=0.0071,
)
WORK = Lease(
    number=70_000,
    task="evaluate",
    epoch=300,
    start=100_000,
    stop=104_096,
    batch_size=64,
    learning_rate=0.0125,
    fence=7,
    rollbacks=1,
)
HELLO = Hello("gpu", "gpu:0", threads=1, pid=4242, package="0.1.0", fingerprint="abc123")
WELCOME = Welcome(
    worker=3,
    name="gpu-0",
    layers=(DenseLayer(123, 512, "relu"), DenseLayer(512, 2, "linear", output_major=True)),
    loss="softmax",
    optimizer=Optimizer("adam", 1e-4, 0.9, 0.999, 1e-8),
    merge="delta",
    merge_every=1,
    staleness_damping="off",
    precision="float32",
    lsh=defaults("dwta", 50_000, seed=3),
)
SERVER_WORKER = ServerWorker(
    name="cpu-0",
    device="cpu",
    threads=8,
    state="trains",
    batch_size=64,
    rows=100_000,
    updates=1600,
    busy=0.97,
)
TO_COORDINATOR = [
    HELLO,
    Hello("server", "a host", 8, 4242, "0.1.0", "abc123", parts=(0, 3, 65_535)),
    Ready(((64, 0.001), (4096, 0.01))),
    DONE,
    Heartbeat(),
    Failed("out of memory"),
    Goodbye(),
    ServerWorkers((SERVER_WORKER,) * 2, others=3),
    Collected(merge=3, leases=17, updates=900, batch_size=64, finite=True, squares=(0.5, 2.0)),
    Connected(version=2, address=b"\0here"),
    Reduced(merge=3, attempt=4, unreachable=2, squares=(0.7, 3.0)),
    Reduced(3, 4, squares=(0.7,), collected=Collected(3, 5, 6, 64, True, (0.3,))),
    Applied(merge=3, seconds=0.02, cpu_seconds=0.01),
    Loaded(),
]
TO_WORKER = [
    *(WELCOME, WORK, Stop(), Refused("other version")),
    Servers(2, (0, 4), (b"\0here", b"there")),
    Collect(merge=3),
    Reduce(3, 4, (0, 4), (1.0, 0.5)),
    Reduce(3, 5, (0, 4), (1.0, 1.0), collect=True),
    Apply(merge=3, sample=True, scales=(1.0, 0.5)),
    UseModel(),
    UseMean(used=True),
]
