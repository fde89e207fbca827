"""Layers: fractions of the peak of kernels, and training steps of networks, beside PyTorch.

Layers are computed on one thread, beside the same layer of PyTorch with oneDNN in turn: forward,
backward (the gradients of inputs), update (those of weights), and all together. The dense layer of
PyTorch is the faster of oneDNN's and of its default. Then whole steps of a small network, with
Adam, by one and by two threads; PyTorch in its better memory format, with as many threads.

    scripts/bench backbones [--rows 16,64] [--repetitions 9] [--json FILE]
"""

import math
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from benchmarks.common import arguments, report
from benchmarks.common.peak import FLOPS, REPEATS, aligned, multiply_add_in_registers, together
from hogbatch.config.backbone import Backbone
from hogbatch.config.backbone_layers import Convolution
from hogbatch.data.batch import Examples, dense_inputs, single_labels
from hogbatch.kernels.backbone import LayerBatch
from hogbatch.kernels.contract import LINEAR, LOSSES, OPTIMIZERS, TOTALS, Hyper
from hogbatch.kernels.cpu import dense
from hogbatch.kernels.cpu.backbone import KINDS
from hogbatch.kernels.cpu.loops import loop_for
from hogbatch.kernels.cpu.model import BatchSettings, ModelView, layer_table
from hogbatch.kernels.cpu.simd import WIDTH
from hogbatch.model.network import Network

LAYERS = [f"{n}x{n}x{c},conv:{c}x3x3" for n in (28, 14) for c in (64, 128)]
LAYERS += [f"1x30x{units},{kind}:{units}" for kind in ("lstm", "gru") for units in (128, 256)]
STEPS = {  # backbone: widths of the dense layers
    "28x28x1,conv:32x3x3,relu,pool:2,conv:64x3x3,relu,pool:2": (128,),
    "1x30x32,lstm:128,last": (),
    "1x30x32,gru:128,last": (),
}
CLASSES, TRAINED, UNITS = 10, 512, 512
DENSE = f"dense:{UNITS}"  # the layer UNITS x UNITS
Work = Callable[[], Any]


def pytorch_parts(layer: Any, given: Any, upper: Any) -> dict[str, Work]:
    """The parts of a layer by PyTorch, from its inputs and the gradients of its outputs."""
    import torch

    def forward() -> Any:
        found = layer(given)
        return found[0] if isinstance(found, tuple) else found

    weights, inputs = [*layer.parameters()], [given.requires_grad_()]
    gradients = partial(torch.autograd.grad, grad_outputs=upper, retain_graph=True)
    return {
        "forward": forward,
        "backward": partial(gradients, forward(), inputs),
        "update": partial(gradients, forward(), weights),
        "together": lambda: gradients(forward(), inputs + weights),
    }


def dense_parts(rows: int) -> tuple[dict[str, list[Work]], int]:
    """The parts of a dense layer by hogbatch and by PyTorch in two ways, and their operations."""
    import torch

    x, upper, out, below = (aligned(np.ones((rows, UNITS), np.float32)) for _ in range(4))
    weights, gradient = (aligned(np.ones((UNITS, UNITS), np.float32)) for _ in range(2))
    space = dense.backward_scratch(rows, UNITS)
    ours: dict[str, Work] = {
        "forward": partial(dense.dense_layer, x, UNITS, weights, x[0], LINEAR, UNITS, out),
        "backward": partial(dense.pass_all_down, upper, weights, space, below),
        "update": partial(dense.transposed_product, x, upper, gradient),
    }
    layer, given = torch.nn.Linear(UNITS, UNITS), [torch.randn(rows, UNITS) for _ in range(2)]
    ways = given, [each.to_mkldnn() for each in given]
    peers = [pytorch_parts(layer, *each) for each in ways]
    parts = {each: [ours[each], *(peer[each] for peer in peers)] for each in ours}
    return parts, 2 * rows * UNITS**2


def layer_parts(text: str, rows: int) -> tuple[dict[str, list[Work]], int]:
    """The parts of one layer that both programs compute alone, and the operations of each."""
    import torch

    if text == DENSE:
        return dense_parts(rows)
    (layer,), random = Backbone.parse(text).layers, np.random.default_rng(0)
    kernels = KINDS[type(layer)](layer, rows)
    weights = [random.normal(0, 0.05, s).astype(np.float32) for s in layer.tensors().values()]
    gradients = [np.zeros_like(each) for each in weights]
    x = random.normal(size=(rows, math.prod(layer.inputs))).astype(np.float32)
    out = np.empty((rows, math.prod(layer.outputs)), np.float32)
    grad = random.normal(size=out.shape).astype(np.float32)
    batch = LayerBatch(x, out, grad, np.empty_like(x), 0)
    height, width, channels = layer.inputs
    if isinstance(layer, Convolution):
        theirs: Any = torch.nn.Conv2d(channels, layer.filters, 3, padding=1)
        given = torch.randn(rows, channels, height, width)
        channels_last = {"memory_format": torch.channels_last}
        theirs, given = (each.to(**channels_last) for each in (theirs, given))
        upper = torch.randn(rows, layer.filters, height, width).to(**channels_last)
    else:
        kind = torch.nn.GRU if "gru" in text else torch.nn.LSTM
        theirs = kind(channels, layer.outputs[2], batch_first=True)
        given, upper = torch.randn(rows, width, channels), torch.randn(rows, *layer.outputs[1:])
    forward = partial(kernels.forward, weights, x, out)
    backward = partial(kernels.backward, weights, gradients)
    ours: dict[str, Work] = {"forward": forward, "together": lambda: (forward(), backward(batch))}
    if isinstance(layer, Convolution):
        ours["update"] = partial(backward, batch._replace(below=None))
    peer = pytorch_parts(theirs, given, upper)
    return {each: [ours[each], peer[each]] for each in ours}, 2 * rows * layer.products


def step_works(text: str, rows: int, threads: int) -> list[Work]:
    """Training on TRAINED rows each by threads of hogbatch that share a model."""
    backbone, random = Backbone.parse(text), np.random.default_rng(0)
    build = backbone.features, STEPS[text], CLASSES, "relu", "softmax", False, backbone
    network = Network.build(*build)
    params = np.zeros(network.parameters, np.float32)
    network.initialise(params, 0)
    X = random.normal(size=(TRAINED, backbone.features)).astype(np.float32)
    labels = single_labels(random.integers(0, CLASSES, TRAINED).astype(np.float32))
    data = Examples(dense_inputs(X), labels, backbone.features).read_only()
    layers = network.layer_views()
    loop = loop_for(layers, sparse=False, hashed=False, backbone=network.placed_backbone())
    settings = BatchSettings(rows, LOSSES["softmax"], OPTIMIZERS["adam"], 0, threads)
    given = data.inputs, data.labels, np.arange(TRAINED), settings
    rest = Hyper(1e-4, 0.0, 0.9, 0.999, 1e-8), np.empty(0, np.int32), np.zeros(8, np.int64)
    steps, table = np.zeros(1, np.int64), layer_table(layers)

    def work() -> Work:
        first, second = np.zeros_like(params), np.zeros_like(params)
        model = ModelView(table, params, first, second, steps, first, second)
        return lambda: loop.train(model, *given, *rest, np.zeros(TOTALS))

    return [work() for _ in range(threads)]


def pytorch_step(text: str, rows: int, threads: int, channels_last: bool) -> Work:
    """The same by PyTorch."""
    import torch

    nn = torch.nn
    if "conv" in text:
        filters = nn.Conv2d(1, 32, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1)
        blocks = [part for each in filters for part in (each, nn.ReLU(), nn.MaxPool2d(2))]
        dense = nn.Flatten(), nn.Linear(3136, 128), nn.ReLU(), nn.Linear(128, CLASSES)
        network, X = nn.Sequential(*blocks, *dense), torch.randn(TRAINED, 1, 28, 28)
    else:
        kind = nn.GRU if "gru" in text else nn.LSTM
        recurrent, last = kind(32, 128, batch_first=True), nn.Linear(128, CLASSES)
        network = nn.ModuleList([recurrent, last])
        network.forward = lambda x: last(recurrent(x)[0][:, -1])
        X = torch.randn(TRAINED, 30, 32)
    if channels_last:
        network, X = (each.to(memory_format=torch.channels_last) for each in (network, X))
    y, loss = torch.randint(0, CLASSES, (TRAINED,)), nn.CrossEntropyLoss()
    adam = torch.optim.Adam(network.parameters(), 1e-4, fused=True)

    def work() -> None:
        torch.set_num_threads(threads)
        for start in range(0, TRAINED, rows):
            part = slice(start, start + rows)
            adam.zero_grad(set_to_none=True)
            loss(network(X[part]), y[part]).backward()
            adam.step()

    return work


def fraction_of_peak(work: Work, flops: float, repetitions: int) -> float:
    """The median over measurements of `work` in this thread, between those of the peak.

    In this thread, because PyTorch prepares its kernels again in each new one. Short works are
    repeated.
    """
    cells, fractions = np.full(WIDTH, 0.5, np.float32), []
    calls = max(1, round(REPEATS * FLOPS / flops))
    work(), multiply_add_in_registers(cells)
    for _ in range(repetitions):
        began = time.perf_counter()
        for _ in range(REPEATS):
            multiply_add_in_registers(cells)
        peak = time.perf_counter()
        for _ in range(calls):
            work()
        ended = time.perf_counter()
        fractions.append(calls * flops / (REPEATS * FLOPS) * (peak - began) / (ended - peak))
    return float(np.median(fractions))


def rows_per_second(works: list[Work], repetitions: int) -> float:
    """The highest of several measurements; the works run at the same time."""
    together(works)
    return len(works) * TRAINED / min(together(works) for _ in range(repetitions))


def main() -> None:
    """Measure and print."""
    parser = arguments.parser("backbones", __doc__)
    parser.add_argument("--rows", type=arguments.positive_list, default=[16, 64], metavar="B,...")
    parser.add_argument("--repetitions", type=int, default=9)
    arguments.add_json(parser)
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    results: list[dict[str, Any]] = []
    for text, rows in product([DENSE, *LAYERS], options.rows):
        parts, flops = layer_parts(text, rows)
        for part, works in parts.items():
            done = 3 * flops if part == "together" else flops
            ours, *peers = (fraction_of_peak(each, done, options.repetitions) for each in works)
            line = {"layer": text, "rows": rows, "part": part, "of_peak": ours}
            line |= {"pytorch_of_peak": max(peers), "over_pytorch": ours / max(peers)}
            results.append(line)
            print(line, flush=True)
    for text in STEPS:
        for rows in options.rows:
            line = {"step": text, "rows": rows}
            for threads in (1, 2):
                works = step_works(text, rows, threads)
                line[f"rows_per_second_{threads}"] = rows_per_second(works, options.repetitions)
            line["pytorch"] = {
                f"{threads} {'channels_last' if last else 'contiguous'}": _alone(
                    pytorch_step(text, rows, threads, last), options.repetitions
                )
                for threads in (1, 2)
                for last in ([False, True] if "conv" in text else [False])
            }
            results.append(line)
            print(line, flush=True)
    report.write(options.json, results)


def _alone(work: Work, repetitions: int) -> float:
    """Rows per second of a program with threads of its own."""
    work()
    seconds = []
    for _ in range(repetitions):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return TRAINED / min(seconds)


if __name__ == "__main__":
    main()
