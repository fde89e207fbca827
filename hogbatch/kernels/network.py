"""A network over any backend: forward, backward and step, one batch at a time.

The loop is interpreted, so it serves batches that keep a device busy for longer than some twenty
Python calls, or steps that are recorded once and repeated without Python (`Device.record`): from
the second batch of a size on nothing is allocated, and no number comes back to the host. Small
batches on a CPU thread run through the compiled loop of the cpu backend.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Inputs, Labels
from hogbatch.kernels.contract import ADAM, Floats, Hyper, Kernels, Rows, Slots

APART = 64  # floats: arrays of the scratch begin on multiples of it, as matrix products like it


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
    """Views of one layer's parameters and their gradient, all in one layout."""

    plan: LayerPlan
    weights: Floats  # [K, H]
    weight_slots: Slots
    weight_gradient: Floats  # [K, H]; [0, 0] where it is made by touched rows
    bias_gradient: Floats  # [H]


class _Workspace(NamedTuple):
    """Scratch for a batch of B rows."""

    gathered: Floats  # [B, K] of the first layer, [B, 0] when rows are read where they lie
    activated: tuple[Floats, ...]  # [B, H] of each layer
    grads: tuple[Floats, ...]  # the same shapes
    values: Floats  # flat: `gathered` and `activated`, and what lies between them


class Network:
    """A network whose parameters lie in one flat array, and scratch for its batches.

    `xp` is the array module of the backend (`Device.xp`); all arrays belong to it. `first` and
    `second` are the optimizer's slots in the layout of `params`, of size 0 where it has none.
    Dense inputs may have fewer columns than the first layer has stored inputs. With `densify`
    sparse inputs are written out and trained on as dense ones: every weight takes every step.
    """

    def __init__(
        self,
        kernels: Kernels,
        xp: Any,
        plan: tuple[LayerPlan, ...],
        params: Floats,
        first: Floats,
        second: Floats,
        densify: bool = False,
    ) -> None:
        self._kernels = kernels
        self._xp = xp
        self._plan = plan
        self._flat = (params, first, second)
        self._densify = densify
        self._sparse: bool | None = None  # of the batch that the layers below were cut for
        self._layers: tuple[_Layer, ...] = ()
        self._gradient: Floats | None = None  # flat, of all that is not stepped by touched rows
        self._csr_scratch: Any = None
        self._space: Floats | None = None

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
        """One update from `rows`[B]; adds LOSS and SKIPPED to `totals`.

        `hyper` has been through `corrected`; no bias gets l2.
        """
        self._prepare_to_train(inputs)
        space = self._forward(inputs, rows)
        self._kernels.loss_gradient(
            loss, labels, rows, self._plan[-1].width, space.activated[-1], space.grads[-1], totals
        )
        self._kernels.forget_not_finite(totals, space.values)
        for index in reversed(range(len(self._layers))):
            self._backward(index, space)
            self._differentiate(index, space, inputs, rows, optimizer, hyper)
        for gradient, slots, weights, decay in self._steps(hyper.l2 > 0):
            exact = hyper if decay else hyper._replace(l2=0.0)
            self._kernels.step(optimizer, exact, gradient, slots, weights)

    def evaluate_batch(
        self, inputs: Inputs, labels: Labels, rows: Rows, loss: int, totals: NDArray[np.float64]
    ) -> None:
        """Add loss and metrics of `rows`[B] to `totals`."""
        scores = self.scores(inputs, rows)
        self._kernels.loss_and_hits(loss, labels, rows, self._plan[-1].width, scores, totals)

    def scores(self, inputs: Inputs, rows: Rows) -> Floats:
        """Outputs [B, H] for `rows`[B]: scratch, good until the next call."""
        return self._forward(inputs, rows).activated[-1]

    def reserve(self, batch: int, *, sparse: bool) -> bool:
        """Make room for batches of `batch` rows; True if arrays had to move.

        A step that was recorded before they moved must not be repeated.
        """
        needed = self._floats(batch, sparse and not self._densify)
        if self._space is not None and needed <= self._space.size:
            return False
        self._space = None  # freed before the new is asked for: the device may not hold both
        self._space = self._xp.empty(needed, self._flat[0].dtype)
        return True

    def _widths(self, sparse: bool) -> list[int]:
        """Columns of all arrays of the scratch, in their order: inputs, activations, gradients."""
        outputs = [plan.fan_out for plan in self._plan]
        return [0 if sparse else self._plan[0].fan_in, *outputs, *outputs]

    def _floats(self, batch: int, sparse: bool) -> int:
        return sum(_round_up(batch * width) for width in self._widths(sparse))

    def _scratch(self, batch: int, sparse: bool) -> _Workspace:
        """The scratch, cut for `batch` rows."""
        self.reserve(batch, sparse=sparse)
        assert self._space is not None
        sparse = sparse and not self._densify
        arrays, end, layers = [], 0, len(self._plan)
        for width in self._widths(sparse):
            arrays.append(self._space[end : end + batch * width].reshape(batch, width))
            end += _round_up(batch * width)
        values = sum(_round_up(array.size) for array in arrays[: layers + 1])
        return _Workspace(
            arrays[0],
            tuple(arrays[1 : layers + 1]),
            tuple(arrays[layers + 1 :]),
            self._space[:values],
        )

    def _forward(self, inputs: Inputs, rows: Rows) -> _Workspace:
        """Run the layers over `rows`."""
        sparse = len(inputs.indptr) > 0
        space = self._scratch(len(rows), sparse)
        by_rows = sparse and not self._densify
        x, params = space.gathered, self._flat[0]
        if not by_rows:
            self._kernels.gather(inputs, rows, x)
        for plan, out in zip(self._plan, space.activated, strict=True):
            weights, bias = _weights(plan, params), params[plan.bias :][: plan.fan_out]
            layer = weights, bias, plan.activation, plan.width, out
            if by_rows and plan is self._plan[0]:
                self._kernels.csr_forward(inputs, rows, *layer)
            else:
                self._kernels.dense_forward(x, *layer)
            x = out
        return space

    def _backward(self, index: int, space: _Workspace) -> None:
        """From the gradient of a layer's outputs to that of the layer below, weights unchanged."""
        layer, grad = self._layers[index], space.grads[index]
        self._kernels.activate_backward(layer.plan.activation, space.activated[index], grad)
        if index > 0:
            self._kernels.dense_backward(grad, layer.weights, space.grads[index - 1])

    def _differentiate(
        self,
        index: int,
        space: _Workspace,
        inputs: Inputs,
        rows: Rows,
        optimizer: int,
        hyper: Hyper,
    ) -> None:
        """The gradient of one layer's parameters; touched rows of a sparse layer step at once."""
        kernels, layer, grad = self._kernels, self._layers[index], space.grads[index]
        if self._sparse and index == 0:
            kernels.csr_bound_rows(optimizer, hyper, inputs, rows, grad)
            kernels.csr_step(
                *(optimizer, hyper, inputs, rows, grad),
                *(self._csr_scratch, layer.weight_slots, layer.weights),
            )
        else:
            x = space.activated[index - 1] if index > 0 else space.gathered
            kernels.bound_rows(optimizer, hyper, x, grad)
            kernels.weight_gradient(x, grad, layer.weight_gradient)
        kernels.bias_gradient(grad, layer.bias_gradient)

    def _steps(self, decayed: bool) -> Iterator[tuple[Floats, Slots, Floats, bool]]:
        """What is to be stepped: gradient, slots, parameters, and whether l2 is for them.

        All at once; with weight decay each bias by itself, because it has none.
        """
        assert self._gradient is not None
        start = self._flat[0].size - self._gradient.size
        params, first, second = (flat[start:] if flat.size else flat for flat in self._flat)
        cuts = {0, params.size}
        if decayed:
            cuts.update(plan.bias - start for plan in self._plan)
            cuts.update(plan.bias - start + plan.fan_out for plan in self._plan)
        edges = sorted(cuts)
        biases = {plan.bias - start for plan in self._plan}
        for begin, end in pairwise(edges):
            part = slice(begin, end)
            slots = Slots(first[part], second[part])
            yield self._gradient[part], slots, params[part], begin not in biases or not decayed

    def _prepare_to_train(self, inputs: Inputs) -> None:
        """Cut the layers, and make what only training needs, for inputs of this form."""
        sparse = len(inputs.indptr) > 0 and not self._densify
        if sparse == self._sparse:
            return
        params, plan = self._flat[0], self._plan
        start = plan[0].bias if sparse else 0
        self._gradient = None  # freed before the new is asked for
        self._gradient = self._xp.zeros(params.size - start, params.dtype)
        self._csr_scratch = None
        if sparse:
            self._csr_scratch = self._kernels.csr_scratch(plan[0].fan_in, plan[0].fan_out)
        self._layers = tuple(self._layer(each, start) for each in plan)
        self._sparse = sparse

    def _layer(self, plan: LayerPlan, start: int) -> _Layer:
        """Views of one layer; `start` is where the gradient begins in the parameters."""
        assert self._gradient is not None
        params, first, second = self._flat
        gradient = params[:0].reshape(0, 0)
        if plan.weights >= start:
            gradient = _weights(plan._replace(weights=plan.weights - start), self._gradient)
        return _Layer(
            plan,
            _weights(plan, params),
            Slots(_weights(plan, first), _weights(plan, second)),
            gradient,
            self._gradient[plan.bias - start :][: plan.fan_out],
        )


def _weights(plan: LayerPlan, flat: Floats) -> Floats:
    """The weights of one layer, a view of the flat array; [0, 0] where that is empty."""
    if flat.size == 0:
        return flat.reshape(0, 0)
    end = plan.weights + plan.fan_in * plan.fan_out
    return flat[plan.weights : end].reshape(plan.fan_in, plan.fan_out)


def _round_up(floats: int) -> int:
    return -(-floats // APART) * APART
