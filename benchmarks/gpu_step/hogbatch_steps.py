"""hogbatch's training step as a GPU worker takes it, and its matrix products alone."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu_step.problem import SyntheticProblem
from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.kernels.contract import LOSS, SKIPPED, SOFTMAX, TOTALS, Hyper
from hogbatch.kernels.executor import Executor
from hogbatch.kernels.gpu.cuda_device import CudaDevice
from hogbatch.kernels.gpu.device import Device, HostDevice
from hogbatch.kernels.gpu.graph import CapturedSteps
from hogbatch.workers.feed import CachedSet

Multiply = Callable[..., None]  # as hogbatch.kernels.gpu.cublaslt.CublasLt.multiply


class Variant(NamedTuple):
    """How a step runs."""

    recorded: bool = True  # once as a CUDA graph, then replayed
    densify: bool = (
        False  # sparse rows are converted to dense; the worker measures whether that pays
    )


VARIANTS = {
    "hogbatch": Variant(),
    "not recorded": Variant(recorded=False),
    "written out": Variant(densify=True),
}
SPARSEST_DENSE = 0.01  # fraction of stored cells; the worker does not densify sparser rows


def device_of(name: str, precision: str) -> Device:
    """The GPU with number `name`, or the host; DeviceError if it cannot be used."""
    device: Device = HostDevice() if name == "host" else CudaDevice(int(name), precision)
    device.enter()
    return device


def variants(problem: SyntheticProblem) -> dict[str, Variant]:
    """The variants that make sense for the rows of `problem`."""
    fraction = problem.shape.stored / problem.shape.features
    return {name: v for name, v in VARIANTS.items() if not v.densify or fraction >= SPARSEST_DENSE}


def resident(device: Device, problem: SyntheticProblem, largest: int) -> CachedSet:
    """All rows on the device, with room for the row numbers of batches up to `largest`."""
    rows = CachedSet(device, problem.examples)
    rows.reserve(largest)
    rows.set_order(0, problem.order)
    return rows


class HogbatchSteps:
    """Training steps on batches of B rows, from the initial parameters on."""

    def __init__(
        self,
        device: Device,
        rows: CachedSet,
        problem: SyntheticProblem,
        batch: int,
        optimizer: str,
        variant: Variant,
    ) -> None:
        spec = OPTIMIZERS[optimizer]
        params = device.to_device(problem.start)
        first, second = (
            device.zeros(params.size if n < spec.slots else 0, np.float32) for n in range(2)
        )
        plan = problem.network.layer_views()
        flat, below = (params, first, second), problem.network.placed_backbone()
        network = Executor(
            *(device.kernels, device.xp, plan, *flat, variant.densify), backbone=below
        )
        rate = device.to_device(np.array([problem.rate(optimizer)]))
        hyper = Hyper(0.0, 0.0, spec.momentum, spec.beta2, spec.epsilon)
        steps = CapturedSteps(device, network, SOFTMAX, spec.kind, hyper)
        steps.set_rate(problem.rate(optimizer))
        totals = device.zeros(TOTALS, np.float64)

        def repeated(start: int) -> None:
            steps.train(*rows.batch(start, start + batch), totals)

        def plain(start: int) -> None:
            _, inputs, labels, numbers, _ = rows.batch(start, start + batch)
            kinds = SOFTMAX, spec.kind, hyper._replace(rate=rate)
            network.train_batch(inputs, labels, numbers, *kinds, totals)

        self.step = repeated if variant.recorded else plain
        self.synchronize = device.synchronize
        self._device, self._totals, self._batch = device, totals, batch

    def loss(self) -> float:
        found = np.empty(TOTALS)
        self._device.to_host(self._totals, found)
        self._totals.fill(0)
        return float(found[LOSS]) / self._batch if found[SKIPPED] == 0 else math.nan


class Products:
    """Only the matrix products of one step on B rows, those of each layer forward and backward."""

    def __init__(
        self, device: Device, problem: SyntheticProblem, batch: int, multiply: Multiply
    ) -> None:
        random, kind = np.random.default_rng(0), device.kernels.operand_type(np.dtype(np.float32))
        sizes = product_sizes(problem, batch)
        cells, arrays = operand(device, random.standard_normal(1 << 20, np.float32)), []
        for rows, inner, width in sizes:
            x, grad = device.empty((rows, inner), kind), device.empty((rows, width), kind)
            for each in x, grad:  # not zeros, which are multiplied faster
                flat = each.reshape(-1)
                for start in range(0, flat.size, cells.size):
                    part = flat[start : start + cells.size]
                    part[:] = cells[: part.size]
            weights = random.standard_normal((inner, width), np.float32) * np.float32(0.1)
            given = operand(device, weights), device.empty((inner, width), np.float32)
            arrays.append((x, grad, *given, device.empty((rows, width), kind)))

        def multiply_all() -> None:
            for x, _, weights, _, out in arrays:
                multiply(x, weights, out)
            for n, (x, grad, weights, gradient, _) in enumerate(arrays):
                if n > 0 or problem.examples.sparse:
                    multiply(grad, weights, x, transpose_b=True)
                multiply(x, grad, gradient, transpose_a=True)

        self._repeat = device.capture(multiply_all)
        self._kept = multiply_all  # because a recorded graph keeps no memory alive
        self.synchronize = device.synchronize

    def step(self, start: int) -> None:
        self._repeat()


def product_sizes(problem: SyntheticProblem, batch: int) -> list[tuple[int, int, int]]:
    """M, K and N of the forward products [M, K] @ [K, N]; a sparse first layer has none."""
    sizes = []
    for layer in problem.network.backbone.layers if problem.network.backbone else ():
        shapes = [shape for shape in layer.tensors().values() if len(shape) > 1]
        for index, shape in enumerate(shapes):
            inner = math.prod(shape[:-1])
            steps = layer.products // (inner * shape[-1]) if len(shapes) == 1 else layer.inputs[1]
            alone = index > 0  # recurrent: a product for each step
            sizes += [(batch * (1 if alone else steps), inner, shape[-1])] * (steps if alone else 1)
    plan = problem.network.layer_views()[1 if problem.examples.sparse else 0 :]
    return sizes + [(batch, each.fan_in, each.fan_out) for each in plan]


class SquareProduct:
    """One large square product of the device's operands, in the precision of `multiply`."""

    def __init__(self, device: Device, side: int, multiply: Multiply) -> None:
        random = np.random.default_rng(0)
        a, b = (operand(device, random.standard_normal((side, side), np.float32)) for _ in "ab")
        self._arrays = a, b, device.empty((side, side), a.dtype)
        self._multiply = multiply
        self.synchronize = device.synchronize

    def step(self, start: int) -> None:
        self._multiply(*self._arrays)


def operand(device: Device, host: NDArray[np.float32]) -> Any:
    """`host` on the device, in the type of the operands of its products."""
    there = device.to_device(host)
    out = device.empty(host.shape, device.kernels.operand_type(host.dtype))
    device.kernels.to_operands(there, out)
    return out


def multiplier(device: Device, precision: str) -> Multiply:
    """The kernels' plain product; on the host NumPy."""
    if isinstance(device, HostDevice):
        return _multiply_on_host
    from hogbatch.kernels.gpu.cublaslt import CublasLt

    multiply: Multiply = CublasLt(precision).multiply
    return multiply


def _multiply_on_host(
    a: Any, b: Any, out: Any, transpose_a: bool = False, transpose_b: bool = False
) -> None:
    np.matmul(a.T if transpose_a else a, b.T if transpose_b else b, out=out)
