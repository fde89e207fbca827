"""Is a GPU worker's training step at the limit of the device?

A step takes row numbers of a set that lies on the device, gathers the rows, and does forward, loss,
backward and optimizer. On rows of random numbers, first all take 20 steps from the same start, to
the same losses; then they are timed in turn:

hogbatch        as the worker takes its steps: recorded once, repeated as a CUDA graph
not recorded    the same, launched by Python each time
written out     recorded, sparse rows written out as dense ones, where that may pay
products        the step's matrix products by cuBLAS, as a graph (a sparse first layer has none)
eager           PyTorch with a fused optimizer (foreach, where the device has no fused one)
eager-csr       the same for sparse rows by CSR products; the others use EmbeddingBag
graph           the eager step of PyTorch, optimizer included, as one CUDA graph
graph-csr       the same of eager-csr
compiled        torch.compile, mode reduce-overhead
autotuned       torch.compile, mode max-autotune-no-cudagraphs, all captured as one CUDA graph

    scripts/bench gpu_step --json out.json                       some 4 minutes
    scripts/bench gpu_step --optimizer adagrad --json out.json
    scripts/bench gpu_step --networks 300-512x8-2 --peers graph,autotuned --batches 256,4096
    scripts/bench gpu_step --networks 300:12-512x8-2 --peers graph,graph-csr
    scripts/bench gpu_step --device host --batches 64,256 --peers eager    rehearses on the CPU

A network is called features-hidden-outputs, with features:stored where rows are sparse; the first
two are those of Ma & Rusu for w8a and covtype. What compiles does so for each batch size, and takes
part at the smallest, a middle and the largest. In bfloat16 PyTorch is under autocast; hogbatch's
arrays stay float32, and the products round. Of operations only those of the products count.
"TFLOP/s", "of products" (time of theirs over that of the step), "of square" (one large square
product by the faster of hogbatch's and PyTorch's calls) and "over best peer" are those of the
faster recorded step of hogbatch. PyTorch on sparse rows written out is the dense network.
"""

import argparse
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import cycle, islice, product
from math import ceil, inf
from pathlib import Path
from typing import Any

import about
import numpy as np
from steps import ours
from steps.course import TOLERANCES, Course, check
from steps.problem import NETWORKS, OPTIMIZERS, Problem, Work
from steps.table import head, line, summed_up

from hogbatch.errors import HogbatchError, UsageError

PEERS = ("eager", "eager-csr", "graph", "graph-csr", "compiled", "autotuned")
DEFAULT_PEERS = ["eager", "eager-csr", "graph", "compiled"]
COMPILED = ("compiled", "autotuned")
BATCHES = [1 << n for n in range(6, 16)]
SET_BATCHES = 4  # of the largest size, that a set holds at least
ROWS = 1 << 17  # of a set on a GPU at least, so that its caches do not hold them
SIDE, HOST_SIDE = 8192, 512  # of the square product
LEAST_STEPS = 4  # of a measurement

Result = dict[str, Any]


def per_step(work: Work, starts: Iterator[int], count: int) -> float:
    """Seconds of one of `count` steps."""
    work.synchronize()
    began = time.perf_counter()
    for start in islice(starts, count):
        work.step(start)
    work.synchronize()
    return (time.perf_counter() - began) / count


def timed(
    works: Mapping[str, Work], starts: Sequence[int], seconds: float, repetitions: int
) -> dict[str, list[float]]:
    """Seconds of a step, measured over about `seconds`, in turn, each time in another order."""
    rows = {name: cycle(starts) for name in works}
    counts = {
        name: max(LEAST_STEPS, ceil(seconds / per_step(work, rows[name], LEAST_STEPS)))
        for name, work in works.items()
    }
    order, times = random.Random(0), {name: list[float]() for name in works}
    for _ in range(repetitions):
        for name in order.sample(list(works), len(works)):
            times[name].append(per_step(works[name], rows[name], counts[name]))
    return times


def square_speeds(arguments: argparse.Namespace, precision: str) -> dict[str, float]:
    """TFLOP/s of a large square product, by who calls cuBLAS."""
    side = HOST_SIDE if arguments.device == "host" else SIDE
    device = ours.device_of(arguments.device, precision)
    works: dict[str, Work] = {
        "hogbatch": ours.Square(device, side, ours.multiplier(device, precision))
    }
    if arguments.peers:
        from steps import pytorch

        place = pytorch.prepare(arguments.device, precision)
        works["torch"] = pytorch.Square(place, side, precision)
    times = timed(works, [0], arguments.seconds, arguments.repetitions)
    return {name: 2 * side**3 / statistics.median(each) / 1e12 for name, each in times.items()}


def measure(
    course: Course, batch: int, peers: Collection[str], seconds: float, repetitions: int
) -> Result:
    """One batch size: check that all do the same, then time all. UsageError if they do not."""
    steps, losses = course.trained(batch, peers)
    differ = check(losses, course.precision)
    works: dict[str, Work] = {**steps, "products": course.products(batch)}
    starts = range(0, course.problem.examples.rows - batch + 1, batch)
    times = timed(works, starts, seconds, repetitions)
    for name, each in steps.items():
        if not np.isfinite(loss := each.loss()):
            raise UsageError(f"expected finite losses; got {loss} of {name}: lower the rates")
    return {
        "precision": course.precision,
        "optimizer": course.optimizer,
        "batch": batch,
        "flops_per_row": course.problem.shape.flops,
        "losses_differ": differ,
        "left_out": dict(course.left_out),
        "step_seconds": times,
    }


def results(
    arguments: argparse.Namespace, squares: dict[str, dict[str, float]]
) -> Iterator[Result]:
    """Every batch size of every course, as long as there is time."""
    end = time.perf_counter() + arguments.limit
    largest, compiled = max(arguments.batches), compiled_at(arguments.batches)
    rows = max(SET_BATCHES * largest, 0 if arguments.device == "host" else ROWS)
    for network in arguments.networks:
        problem = Problem.build(NETWORKS[network], arguments.activation, rows)
        for precision, optimizer in product(arguments.precision, arguments.optimizer):
            course = Course(arguments.device, problem, precision, optimizer, largest)
            for batch in arguments.batches:
                where = f"{network}, {precision}, {optimizer}, batches of {batch}"
                if time.perf_counter() > end:
                    print(f"left out from {where} on: --limit {arguments.limit:g}", flush=True)
                    return
                peers = [x for x in arguments.peers if x not in COMPILED or batch in compiled]
                try:
                    found = measure(course, batch, peers, arguments.seconds, arguments.repetitions)
                except UsageError as error:
                    raise UsageError(f"{where}: {error}") from None
                course.free()
                named = {"network": network, "activation": arguments.activation}
                yield summed_up(named | found, squares[precision])


def compiled_at(batches: Sequence[int]) -> set[int]:
    """Batch sizes for what has to be compiled for each, which takes longer than all else."""
    ordered = sorted(batches)
    return {ordered[0], ordered[len(ordered) // 2], ordered[-1]}


def described(device: str) -> Result | None:
    """Name, driver (null: nvidia-smi is not there) and CUDA version of a GPU; None for the host."""
    if device == "host":
        return None
    import cupy

    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        driver = None
    runtime = cupy.cuda.runtime
    name = runtime.getDeviceProperties(int(device))["name"].decode()
    return {"name": name, "driver": driver, "cuda": runtime.runtimeGetVersion()}


def circumstances(arguments: argparse.Namespace) -> Result:
    """What `about.write` does not know of itself."""
    versions: dict[str, str] = about.machine()["versions"]
    forms: dict[str, str] = {}
    if arguments.device != "host":
        import cupy

        versions |= {"cupy": cupy.__version__}
    if arguments.peers:
        from steps import pytorch

        versions |= pytorch.versions()
        place = pytorch.prepare(arguments.device, "float32")
        forms = {name: pytorch.optimizer_form(name, place) for name in arguments.optimizer}
    return {"gpu": described(arguments.device), "versions": versions, "torch_optimizers": forms}


def objection(device: str) -> str | None:
    """Why PyTorch cannot take part, or None."""
    if not find_spec("torch"):
        return "torch is not installed"
    from steps import pytorch

    return pytorch.objection(device)


def settle(arguments: argparse.Namespace) -> None:
    """Leave PyTorch out where it is not; UsageError for what would be missed later."""
    if arguments.json and not arguments.json.parent.is_dir():
        raise UsageError(f"--json {arguments.json}: there is no folder {arguments.json.parent}")
    try:
        ours.device_of(arguments.device, arguments.precision[0])
    except HogbatchError as missing:
        raise UsageError(f"{missing}; --device host rehearses without a GPU") from missing
    if arguments.peers and (reason := objection(arguments.device)):
        print(f"PyTorch left out: {reason}", flush=True)
        arguments.peers = []


def listed(known: Collection[str], none: bool = False) -> Callable[[str], list[str]]:
    """An argparse type: names, separated by commas."""

    def names(text: str) -> list[str]:
        if none and text == "none":
            return []
        if unknown := set(text.split(",")) - set(known):
            choice = ", ".join([*known, *(["none"] if none else [])])
            got = ", ".join(sorted(map(repr, unknown)))
            raise argparse.ArgumentTypeError(f"expected names out of {choice}; got {got}")
        return list(dict.fromkeys(text.split(",")))

    return names


def above_zero(kind: Callable[[str], float]) -> Callable[[str], float]:
    """An argparse type: a finite number above 0."""

    def number(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = 0
        if not 0 < value < inf:
            what = "whole number" if kind is int else "number"
            raise argparse.ArgumentTypeError(f"expected a {what} above 0; got {text!r}")
        return value

    return number


def sizes(text: str) -> list[int]:
    """An argparse type: rows, separated by commas."""
    return [int(above_zero(int)(part)) for part in dict.fromkeys(text.split(","))]


def gpu_or_host(text: str) -> str:
    """An argparse type: a GPU's number, or "host"."""
    if text == "host" or text.isdecimal():
        return text
    raise argparse.ArgumentTypeError(f"expected the number of a GPU, or host; got {text!r}")


def parse(given: Sequence[str] | None) -> argparse.Namespace:
    """The flags; exit code 2 and one sentence for what they cannot be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    number, whole, add = above_zero(float), above_zero(int), parser.add_argument
    for flag, known, default in (
        ("--networks", NETWORKS, list(NETWORKS)),
        ("--precision", TOLERANCES, list(TOLERANCES)),
        ("--optimizer", OPTIMIZERS, ["sgd"]),
        ("--peers", PEERS, DEFAULT_PEERS),
    ):
        none = flag == "--peers"
        choice = f"out of {', '.join(known)}{', or none' if none else ''}"
        add(flag, type=listed(known, none), default=default, metavar="NAMES", help=choice)
    add("--device", type=gpu_or_host, default="0", metavar="N|host", help="host: NumPy")
    add("--activation", default="relu", choices=("relu", "sigmoid"))
    add("--batches", type=sizes, default=BATCHES, metavar="ROWS,...")
    add("--repetitions", type=whole, default=5)
    add("--seconds", type=number, default=0.02, help="of a measurement")
    add("--limit", type=number, default=225.0, help="seconds after which nothing more is begun")
    add("--json", type=Path, metavar="FILE", help="write all results there, after each batch size")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Measure, print and write; 2 if something cannot be measured."""
    arguments, found = parse(given), list[Result]()
    try:
        settle(arguments)
        settings = circumstances(arguments)
        squares = {each: square_speeds(arguments, each) for each in arguments.precision}
        for precision, speeds in squares.items():
            told = ", ".join(f"{speed:.3g} by {name}" for name, speed in speeds.items())
            print(f"square product, {precision}: TFLOP/s {told}", flush=True)
        settings |= {"square_tflops": squares}
        print(head(arguments.peers), flush=True)
        for result in results(arguments, squares):
            print(line(result, arguments.peers), flush=True)
            found.append(result)  # and written at once: a GPU may be lent for a while only
            about.write(arguments.json, found, **settings)
    except UsageError as error:
        print(f"gpu_step: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
