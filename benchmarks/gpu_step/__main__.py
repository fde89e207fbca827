"""Does a GPU worker's training step reach the limit of the device?

A step takes row numbers of a data set in device memory, gathers the rows, and does forward, loss,
backward and update, on rows of random numbers. First all variants take 20 steps from the same start
and should reach the same losses; then they are timed in turn:

hogbatch        the worker's step: recorded once as a CUDA graph, then replayed
not recorded    the same, launched by Python each time
written out     recorded, with sparse rows converted to dense rows, if that may be faster
products        the step's matrix products by cuBLASLt, as a graph (a sparse first layer has none)
eager           PyTorch with a fused optimizer (foreach if the device has no fused one)
graph           the eager step of PyTorch, optimizer included, as one CUDA graph
compiled        torch.compile, mode reduce-overhead
autotuned       torch.compile, mode max-autotune-no-cudagraphs, all captured as one CUDA graph

    scripts/bench gpu_step --json out.json                       about 4 minutes
    scripts/bench gpu_step --optimizer adagrad --json out.json
    scripts/bench gpu_step --networks 300-512x8-2 --peers graph,autotuned --batches 256,4096
    scripts/bench gpu_step --device host --batches 64,256 --peers eager    on the CPU, for a trial

A network is called features-hidden-outputs, with features:stored for sparse rows; the first two are
those of Ma & Rusu for w8a and covtype. "pictures" has two convolutions, "sequences" an LSTM layer
(not in bfloat16). Compiled variants compile for each batch size, so they run
only at the smallest, a middle and the largest. In bfloat16 PyTorch runs under autocast;
hogbatch stores the operands of products. PyTorch on converted sparse rows is the dense network.

Prints a table. Only the operations of the products count. "TFLOP/s", "of products" (their time over
that of the step), "of square" (one large square product by the faster of hogbatch's and PyTorch's
calls) and "over best peer" are those of the faster recorded step of hogbatch. "losses" names the
variants whose losses differ from hogbatch's by more than the tolerance, so that their times cannot
be compared, with the difference as a fraction of the change by training; then the exit code is 1.
"""

import argparse
import random
import statistics
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import cycle, islice, product
from math import ceil

import numpy as np

from benchmarks.common import arguments, machine, report
from benchmarks.gpu_step import hogbatch_steps
from benchmarks.gpu_step.course import TOLERANCES, Course, compare
from benchmarks.gpu_step.problem import NETWORKS, OPTIMIZERS, SyntheticProblem, TimedWork
from benchmarks.gpu_step.table import Result, head, line, summarised
from hogbatch.errors import HogbatchError, UsageError
from hogbatch.machine.linux import nvidia_driver

PEERS = ("eager", "graph", "compiled", "autotuned")
DEFAULT_PEERS = ["eager", "graph", "compiled"]
COMPILED = ("compiled", "autotuned")
BATCHES = [1 << n for n in range(6, 16)]
SET_BATCHES = 4  # minimum number of batches of the largest size in a data set
ROWS = 1 << 17  # minimum of a data set on a GPU, so that its caches do not hold them
SIDE, HOST_SIDE = 8192, 512  # of the square product
MIN_STEPS = 4  # of a measurement


def per_step(work: TimedWork, starts: Iterator[int], count: int) -> float:
    """Mean seconds per step over `count` steps."""
    work.synchronize()
    began = time.perf_counter()
    for start in islice(starts, count):
        work.step(start)
    work.synchronize()
    return (time.perf_counter() - began) / count


def timed(
    works: Mapping[str, TimedWork], starts: Sequence[int], seconds: float, repetitions: int
) -> dict[str, list[float]]:
    """Seconds per step, each measured for about `seconds`; in turn, in a random order each time."""
    rows = {name: cycle(starts) for name in works}
    counts = {
        name: max(MIN_STEPS, ceil(seconds / per_step(work, rows[name], MIN_STEPS)))
        for name, work in works.items()
    }
    order, times = random.Random(0), {name: list[float]() for name in works}
    for _ in range(repetitions):
        for name in order.sample(list(works), len(works)):
            times[name].append(per_step(works[name], rows[name], counts[name]))
    return times


def square_speeds(options: argparse.Namespace, precision: str) -> dict[str, float]:
    """TFLOP/s of a large square product, through hogbatch's and through PyTorch's calls."""
    side = options.side or (HOST_SIDE if options.device == "host" else SIDE)
    device = hogbatch_steps.device_of(options.device, precision)
    works: dict[str, TimedWork] = {
        "hogbatch": hogbatch_steps.SquareProduct(
            device, side, hogbatch_steps.multiplier(device, precision)
        )
    }
    if options.peers:
        from benchmarks.gpu_step import pytorch_steps

        torch_device = pytorch_steps.prepare(options.device, precision)
        works["torch"] = pytorch_steps.TorchSquareProduct(torch_device, side, precision)
    times = timed(works, [0], options.seconds, options.repetitions)
    return {name: 2 * side**3 / statistics.median(each) / 1e12 for name, each in times.items()}


def measure(
    course: Course, batch: int, peers: Collection[str], seconds: float, repetitions: int
) -> Result:
    """Compare the losses of all variants with one batch size, and time them."""
    steps, losses = course.trained(batch, peers)
    agreement = compare(losses, course.precision)
    works: dict[str, TimedWork] = {**steps, "products": course.products(batch)}
    starts = range(0, course.problem.examples.rows - batch + 1, batch)
    times = timed(works, starts, seconds, repetitions)
    diverged = [name for name, each in steps.items() if not np.isfinite(each.loss())]
    return {
        "precision": course.precision,
        "optimizer": course.optimizer,
        "batch": batch,
        "flops_per_row": course.problem.shape.flops,
        "differences": agreement.differences,
        "mismatched": agreement.mismatched,
        "diverged": diverged,  # while they were timed
        "left_out": dict(course.left_out),
        "step_seconds": times,
    }


def results(options: argparse.Namespace, squares: dict[str, dict[str, float]]) -> Iterator[Result]:
    """The result of every batch size of every course, until the time limit."""
    end = time.perf_counter() + options.limit
    largest, compiled = max(options.batches), compiled_at(options.batches)
    least = options.rows or (0 if options.device == "host" else ROWS)
    rows = max(SET_BATCHES * largest, least)
    for network in options.networks:
        problem = SyntheticProblem.build(NETWORKS[network], options.activation, rows)
        for precision, optimizer in product(options.precision, options.optimizer):
            if precision == "bfloat16" and problem.network.backbone is not None:
                continue
            course = Course(options.device, problem, precision, optimizer, largest)
            for batch in options.batches:
                where = f"{network}, {precision}, {optimizer}, batches of {batch}"
                if time.perf_counter() > end:
                    print(f"stopped before {where}: --limit {options.limit:g} reached", flush=True)
                    return
                peers = [x for x in options.peers if x not in COMPILED or batch in compiled]
                found = measure(course, batch, peers, options.seconds, options.repetitions)
                course.free()
                named = {"network": network, "activation": options.activation}
                yield summarised(named | found, squares[precision])


def compiled_at(batches: Sequence[int]) -> set[int]:
    """Batch sizes for the compiled variants; compilation takes longer than everything else."""
    ordered = sorted(batches)
    return {ordered[0], ordered[len(ordered) // 2], ordered[-1]}


def gpu_description(device: str) -> Result | None:
    """Name, driver and CUDA version of a GPU; None for the host."""
    if device == "host":
        return None
    import cupy

    runtime = cupy.cuda.runtime
    name = runtime.getDeviceProperties(int(device))["name"].decode()
    return {"name": name, "driver": nvidia_driver(), "cuda": runtime.runtimeGetVersion()}


def description(options: argparse.Namespace) -> Result:
    """GPU, versions and PyTorch's optimizers, in addition to the machine's description."""
    versions: dict[str, str] = machine.describe()["versions"]
    forms: dict[str, str] = {}
    if options.device != "host":
        import cupy

        versions |= {"cupy": cupy.__version__}
    if options.peers:
        from benchmarks.gpu_step import pytorch_steps

        versions |= pytorch_steps.versions()
        device = pytorch_steps.prepare(options.device, "float32")
        forms = {name: pytorch_steps.optimizer_form(name, device) for name in options.optimizer}
    return {"gpu": gpu_description(options.device), "versions": versions, "torch_optimizers": forms}


def objection(device: str) -> str | None:
    """Why PyTorch cannot take part, or None."""
    if not find_spec("torch"):
        return "torch is not installed"
    from benchmarks.gpu_step import pytorch_steps

    return pytorch_steps.objection(device)


def settle(options: argparse.Namespace) -> None:
    """Remove PyTorch from the peers if it cannot run; UsageError for what would fail later."""
    try:
        hogbatch_steps.device_of(options.device, options.precision[0])
    except HogbatchError as missing:
        raise UsageError(f"{missing}; --device host runs without a GPU") from missing
    if options.peers and (reason := objection(options.device)):
        print(f"skipping PyTorch: {reason}", flush=True)
        options.peers = []


def parse(flags: Sequence[str] | None) -> argparse.Namespace:
    """The flags; exit code 2 with one sentence for invalid values."""
    parser = arguments.parser("gpu_step", __doc__)
    add, whole = parser.add_argument, arguments.positive(int)
    for flag, known, default in (
        ("--networks", NETWORKS, list(NETWORKS)),
        ("--precision", TOLERANCES, list(TOLERANCES)),
        ("--optimizer", OPTIMIZERS, ["sgd"]),
        ("--peers", PEERS, DEFAULT_PEERS),
    ):
        none = "none" if flag == "--peers" else None
        choice = f"{', '.join(known)}{', or none' if none else ''}"
        kind = arguments.names(known, none)
        add(flag, type=kind, default=default, metavar="NAMES", help=choice)
    add(
        "--device",
        type=arguments.gpu_or_host,
        default="0",
        metavar="N|host",
        help="number of the GPU; host: NumPy on the CPU (default: 0)",
    )
    add("--activation", default="relu", choices=("relu", "sigmoid"), help="hidden layers")
    add(
        "--batches",
        type=arguments.positive_list,
        default=BATCHES,
        metavar="ROWS,...",
        help="batch sizes (default: powers of two from 64 to 32768)",
    )
    add("--rows", type=whole, help=f"minimum rows of a data set (default: {ROWS} on a GPU)")
    add("--side", type=whole, help=f"side of the square product (default: {SIDE} on a GPU)")
    number = partial(arguments.add_number, parser)
    number("--repetitions", 5, "measurements per variant")
    number("--seconds", 0.02, "duration of a measurement")
    number("--limit", 225.0, "seconds after which no further batch size is started")
    arguments.add_json(parser)
    return parser.parse_args(flags)


def main(flags: Sequence[str] | None = None) -> int:
    """Measure, print and write; exit code 1 if losses differ, 2 if nothing can be measured."""
    options, measured = parse(flags), list[Result]()
    try:
        settle(options)
        settings = description(options)
        squares = {each: square_speeds(options, each) for each in options.precision}
        for precision, speeds in squares.items():
            shown = ", ".join(f"{speed:.3g} by {name}" for name, speed in speeds.items())
            print(f"square product, {precision}: TFLOP/s {shown}", flush=True)
        settings |= {"square_tflops": squares}
        print(head(options.peers), flush=True)
        for result in results(options, squares):
            print(line(result, options.peers), flush=True)
            measured.append(result)  # written after each, so that an interruption loses only one
            report.write(options.json, measured, **settings)
    except UsageError as error:
        print(f"gpu_step: {error}", file=sys.stderr)
        return error.exit_code
    return int(any(each["mismatched"] or each["diverged"] for each in measured))


if __name__ == "__main__":
    sys.exit(main())
