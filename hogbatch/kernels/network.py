"""A network over any backend: forward, backward and step, one batch at a time.

The loop is interpreted, so it serves batches that keep a device busy for longer than some twenty
Python calls. Small batches on a CPU thread run through the compiled loop of the cpu backend.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Inputs, Labels
from hogbatch.kernels.contract import (
    ADAM,
    ROWS,
    SKIPPED,
    UPDATES,
    Floats,
    Hyper,
    Kernels,
    Links,
    Rows,
    Slots,
)


class LayerPlan(NamedTuple):
    """One layer of the flat parameters; offsets count floats. Plain integers, for kernels."""

    weights: int  # where weights[fan_in, fan_out] begin
    bias: int  # where bias[fan_out] begins
    fan_in: int  # stored inputs, K
    fan_out: int  # stored outputs, H
    width: int  # real outputs
    activation: int


def corrected(optimizer: int, hyper: Hyper, t: int) -> Hyper:
    """`hyper` with Adam's bias correction of update `t`, counted from 1, in its rate.

    Kingma & Ba 2015, end of section 2. Other optimizers need none.
    """
    if optimizer != ADAM:
        return hyper
    correction = np.sqrt(1 - hyper.beta2**t) / (1 - hyper.momentum**t)
    return hyper._replace(rate=hyper.rate * float(correction))


class _Layer(NamedTuple):
    """Views of one layer's parameters and optimizer slots; the bias is a tensor [1, H]."""

    plan: LayerPlan
    weights: Floats
    bias: Floats
    weight_slots: Slots
    bias_slots: Slots


class _Workspace(NamedTuple):
    """Scratch for up to `batch` rows."""

    batch: int
    sparse: bool
    gathered: Floats  # [batch, K] of the first layer, [batch, 0] when the inputs are sparse
    activated: tuple[Floats, ...]  # [batch, H] of each layer
    grads: tuple[Floats, ...]  # the same shapes
    weight_gradient: Floats  # flat, for the largest dense layer
    bias_gradient: Floats  # flat, for the widest layer


class Network:
    """A network whose parameters lie in one flat array, and scratch for its batches.

    `xp` is the array module of the backend (`Device.xp`); all arrays belong to it. `first` and
    `second` are the optimizer's slots in the layout of `params`, of size 0 where it has none.
    Dense inputs may have fewer columns than the first layer has stored inputs.
    """

    def __init__(
        self,
        kernels: Kernels,
        xp: Any,
        plan: tuple[LayerPlan, ...],
        params: Floats,
        first: Floats,
        second: Floats,
    ) -> None:
        self._kernels = kernels
        self._xp = xp
        self._dtype = params.dtype
        self._layers = tuple(_layer(each, params, first, second) for each in plan)
        self._space: _Workspace | None = None
        self._links: Links | None = None

    def train_batch(
        self,
        inputs: Inputs,
        labels: Labels,
        rows: Rows,
        loss: int,
        optimizer: int,
        hyper: Hyper,
        totals: NDArray[np.float64],
    ) -> None:
        """One update from `rows`[B]. `hyper` has been through `corrected`; no bias gets l2."""
        space = self._forward(inputs, rows)
        self._kernels.loss_gradient(
            loss, labels, rows, self._top.width, space.activated[-1], space.grads[-1], totals
        )
        if totals[SKIPPED] > 0:
            self._forget_not_finite(space)
        for index in reversed(range(len(self._layers))):
            self._backward(index, space)
            self._update(index, space, inputs, rows, optimizer, hyper)
        totals[ROWS] += len(rows)
        totals[UPDATES] += 1

    def evaluate_batch(
        self, inputs: Inputs, labels: Labels, rows: Rows, loss: int, totals: NDArray[np.float64]
    ) -> None:
        """Add loss and metrics of `rows`[B] to `totals`."""
        scores = self.scores(inputs, rows)
        self._kernels.loss_and_hits(loss, labels, rows, self._top.width, scores, totals)
        totals[ROWS] += len(rows)

    def scores(self, inputs: Inputs, rows: Rows) -> Floats:
        """Outputs [B, H] for `rows`[B]: scratch, good until the next call."""
        return self._forward(inputs, rows).activated[-1]

    @property
    def _top(self) -> LayerPlan:
        return self._layers[-1].plan

    def _forward(self, inputs: Inputs, rows: Rows) -> _Workspace:
        """Run the layers over `rows`; returns the scratch, cut to B rows."""
        space = self._scratch(len(rows), sparse=len(inputs.indptr) > 0)
        x = space.gathered
        if not space.sparse:
            self._kernels.gather(inputs, rows, x)
        for index, (layer, out) in enumerate(zip(self._layers, space.activated, strict=True)):
            if space.sparse and index == 0:
                self._kernels.csr_forward(inputs, rows, layer.weights, layer.bias[0], out)
            else:
                self._kernels.dense_forward(x, layer.weights, layer.bias[0], out)
            self._kernels.activate(layer.plan.activation, layer.plan.width, out)
            x = out
        return space

    def _forget_not_finite(self, space: _Workspace) -> None:
        """Clear what overflowed: a skipped row has gradient 0, but 0 · inf would be nan."""
        for array in (space.gathered, *space.activated):
            self._xp.nan_to_num(array, copy=False, nan=0.0, posinf=0.0, neginf=0.0)

    def _backward(self, index: int, space: _Workspace) -> None:
        """From the gradient of a layer's outputs to that of the layer below, weights unchanged."""
        layer, grad = self._layers[index], space.grads[index]
        self._kernels.activate_backward(layer.plan.activation, space.activated[index], grad)
        if index > 0:
            self._kernels.dense_backward(grad, layer.weights, space.grads[index - 1])

    def _update(
        self,
        index: int,
        space: _Workspace,
        inputs: Inputs,
        rows: Rows,
        optimizer: int,
        hyper: Hyper,
    ) -> None:
        """Step one layer's weights and bias."""
        kernels, layer, grad = self._kernels, self._layers[index], space.grads[index]
        if space.sparse and index == 0:
            kernels.csr_bound_rows(optimizer, hyper, inputs, rows, grad)
            links = self._links_for(inputs, rows)
            kernels.csr_step(
                optimizer, hyper, inputs, rows, grad, links, layer.weight_slots, layer.weights
            )
        else:
            x = space.activated[index - 1] if index > 0 else space.gathered
            kernels.bound_rows(optimizer, hyper, x, grad)
            gradient = space.weight_gradient[: layer.weights.size].reshape(layer.weights.shape)
            kernels.weight_gradient(x, grad, gradient)
            kernels.step(optimizer, hyper, gradient, layer.weight_slots, layer.weights)
        gradient = space.bias_gradient[: layer.bias.size]
        kernels.bias_gradient(grad, gradient)
        unregularised = hyper._replace(l2=0.0)
        kernels.step(
            optimizer, unregularised, gradient.reshape(1, -1), layer.bias_slots, layer.bias
        )

    def _scratch(self, batch: int, sparse: bool) -> _Workspace:
        """Scratch cut to `batch` rows; made anew only when it has to grow."""
        if self._space is None or batch > self._space.batch or sparse != self._space.sparse:
            self._space = None  # freed before the new is asked for: the device may not hold both
            self._space = self._make_scratch(batch, sparse)
        full = self._space
        return full._replace(
            gathered=full.gathered[:batch],
            activated=tuple(array[:batch] for array in full.activated),
            grads=tuple(array[:batch] for array in full.grads),
        )

    def _make_scratch(self, batch: int, sparse: bool) -> _Workspace:
        plans = [layer.plan for layer in self._layers]
        dense = plans[1:] if sparse else plans

        def empty(*shape: int) -> Floats:
            array: Floats = self._xp.empty(shape, self._dtype)
            return array

        return _Workspace(
            batch,
            sparse,
            gathered=empty(batch, 0 if sparse else plans[0].fan_in),
            activated=tuple(empty(batch, plan.fan_out) for plan in plans),
            grads=tuple(empty(batch, plan.fan_out) for plan in plans),
            weight_gradient=empty(max((p.fan_in * p.fan_out for p in dense), default=0)),
            bias_gradient=empty(max(plan.fan_out for plan in plans)),
        )

    def _links_for(self, inputs: Inputs, rows: Rows) -> Links:
        """Links with room for the stored values of `rows`; made anew only when they must grow."""
        stored = int((inputs.indptr[rows + 1] - inputs.indptr[rows]).sum())
        if self._links is None or stored > len(self._links.touched):
            self._links = None
            head = self._xp.full(self._layers[0].plan.fan_in, -1, np.int32)
            scratch = (self._xp.empty(stored, np.int32) for _ in range(3))
            self._links = Links(head, *scratch)
        return self._links


def _layer(plan: LayerPlan, params: Floats, first: Floats, second: Floats) -> _Layer:
    """Cut one layer out of the flat arrays; the views write through."""

    def cut(flat: Floats, offset: int, height: int) -> Floats:
        if flat.size == 0:
            return flat.reshape(0, 0)
        return flat[offset : offset + height * plan.fan_out].reshape(height, plan.fan_out)

    weights = [cut(flat, plan.weights, plan.fan_in) for flat in (params, first, second)]
    bias = [cut(flat, plan.bias, 1) for flat in (params, first, second)]
    return _Layer(plan, weights[0], bias[0], Slots(*weights[1:]), Slots(*bias[1:]))
