"""The compiled training loops, and the one place that decides which of them runs.

A loop runs a whole lease on one thread in one call, without the interpreter lock. All loops do the
same for a batch: forward, gradient of the loss, backward, update of the shared parameters. `dense`
is the general loop. Each other loop leaves something out where that saves most of the time:

========  ==============================  ==========================================================
loop      runs for                        left out of the dense loop, and why
========  ==============================  ==========================================================
dense     every other network:            nothing. A sparse input layer is updated by its touched
          `network.train`                 rows only; all other products are dense and blocked.
linear    one layer with one output, on   matrices. A batch is a few loops over stored values; with
          sparse inputs:                  SGD without weight decay each stored value is an update
          `linear.train`                  of its own. Nothing is allocated between two batches. On
                                          matrices of one column, calls would take most of the time.
wide      an output-major last layer      output weights as columns of one matrix. With 53,000
          (from 10,000 outputs on, with   outputs these would be 212 kB apart, a page each. The last
          hidden layers), all outputs     layer is computed in blocks of outputs instead, each
          computed: `wide.train`          updated while it is in cache. All outputs are computed.
hashed    an output-major last layer      all outputs but the active ones: those that hash tables
          with hash tables                return for the rows of a batch, and its labels. With very
          (--output lsh):                 many outputs nearly all have a probability near 0, and
          `lsh.network.train`             their gradients change almost nothing (docs/slide.md).
========  ==============================  ==========================================================

Evaluation needs the scores of all outputs: `network.evaluate` computes them together, and
`exact.evaluate` in blocks where the last layer is output-major.

The choice depends on the network and on the form of the inputs, which do not change during a run.
A worker makes it once, before its first lease, and no loop calls another one.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from hogbatch.kernels.cpu import exact, linear, network, wide
from hogbatch.kernels.layers import LayerView


class CompiledLoop(NamedTuple):
    """Two compiled functions for the rows of a lease.

    The arguments of `train` are (model, inputs, labels, rows, lease, hyper, head, fence, totals);
    of the hashed loop (model, finder, inputs, labels, rows, lease, hyper, thread, fence, totals).
    Those of `evaluate` are (model, inputs, labels, rows, lease, fence, totals).
    """

    name: Literal["dense", "linear", "wide", "hashed"]
    train: Callable[..., None]
    evaluate: Callable[..., None]


def loop_for(layers: tuple[LayerView, ...], *, sparse: bool, hashed: bool) -> CompiledLoop:
    """Return the loop for a network on sparse (CSR) or dense inputs.

    `hashed` is whether there are hash tables for the output layer, which must be output-major.
    """
    last = layers[-1]
    if hashed:
        from hogbatch.kernels.cpu.lsh import network as lsh  # 20 ms that other loops do not need

        return CompiledLoop("hashed", lsh.train, exact.evaluate)
    if last.output_major:
        return CompiledLoop("wide", wide.train, exact.evaluate)
    if sparse and len(layers) == 1 and last.fan_out == 1:
        return CompiledLoop("linear", linear.train, network.evaluate)
    return CompiledLoop("dense", network.train, network.evaluate)
