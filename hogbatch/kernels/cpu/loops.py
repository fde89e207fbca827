"""The compiled training loops, and the one place that decides which of them runs.

A loop runs a whole lease on one thread, without the interpreter lock, and all but `backbone` in one
call. All loops do the same for a batch: forward, gradient of the loss, backward, update of the
shared parameters. `dense` is the general loop. Each other loop leaves something out where that
saves most of the time:

    dense   nothing; a sparse input layer is updated by its touched rows only
    linear  matrices, for one layer with one output on sparse inputs: a batch is a few loops over
            its stored values
    wide    output weights as columns of one matrix, which would be a page each: an output-major
            last layer (from 10,000 outputs on) is computed and updated in blocks of outputs
    hashed  all outputs but the active ones, those that hash tables return for the rows of a batch,
            and its labels (docs/slide.md)

The loop `backbone`, for networks with layers below the dense ones, calls a kernel for each of them;
`kernels.cpu.backbone` describes its stages.

A batch of any other network with L layers has 2L stages: the forward passes of layers 0 to L - 1,
the last one with the loss and the gradient of the scores, then the backward passes of layers L - 1
to 0. The backward pass of a layer passes the gradient down with the weights as they are then, and
updates them in place. A lease runs all stages of a batch at once; rehearsals compute other batches
between two stages (`hogbatch.simulate.rehearsal`).
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from hogbatch.kernels.backbone import PlacedLayer
from hogbatch.kernels.cpu import exact, linear, network, wide
from hogbatch.kernels.layers import LayerView

LoopName = Literal["dense", "linear", "wide", "hashed", "backbone"]


class CompiledLoop(NamedTuple):
    """The compiled functions of a loop.

    train(model, inputs, labels, rows, lease, hyper, head, fence, totals) and
    evaluate(model, inputs, labels, rows, lease, fence, totals, stored) process the rows of a lease.
    `model` of the hashed loop are two arguments, with its NeuronFinder, except in `evaluate`, and
    its `head` is the HashedThread.

    For batches in stages, open_batches(model, inputs, labels, rows, size, head) allocates their
    workspace `space`, run_stages(model, inputs, labels, rows, lease, hyper, space, totals, first,
    stop, down) computes stages first : stop. `down` is whether backward passes pass the gradient
    down: False after `network.read`, which computes all gradients on one state of the model, in
    place of the forward stages. A batch has `stages` stages.
    """

    name: LoopName
    stages: int
    train: Callable[..., None]
    evaluate: Callable[..., None]
    open_batches: Callable[..., Any]
    run_stages: Callable[..., None]


def loop_for(
    layers: tuple[LayerView, ...],
    *,
    sparse: bool,
    hashed: bool,
    backbone: Sequence[PlacedLayer] = (),
) -> CompiledLoop:
    """Return the loop for a network on sparse (CSR) or dense inputs.

    `hashed` is whether there are hash tables for the output layer, which must be output-major.
    `backbone` are the layers below the dense `layers`.
    """
    if backbone:
        from hogbatch.kernels.cpu import backbone as layered  # only such networks need it

        loop = layered.BackboneLoop(backbone)
        return _loop("backbone", layered.STAGES, loop, loop.evaluate)
    last, stages = layers[-1], 2 * len(layers)
    if hashed:
        from hogbatch.kernels.cpu.lsh import network as lsh  # 20 ms that other loops do not need

        return _loop("hashed", stages, lsh, exact.evaluate)
    if last.output_major:
        return _loop("wide", stages, wide, exact.evaluate)
    if sparse and len(layers) == 1 and last.fan_out == 1:
        return _loop("linear", stages, linear, network.evaluate)
    return _loop("dense", stages, network, network.evaluate)


def _loop(name: LoopName, stages: int, of: Any, evaluate: Callable[..., None]) -> CompiledLoop:
    return CompiledLoop(name, stages, of.train, evaluate, of.open_batches, of.run_stages)
