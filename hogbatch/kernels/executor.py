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
from hogbatch.kernels.contract import BIAS_CORRECTED, LINEAR, Floats, Hyper, Kernels, Rows, Slots

MAX_SCORES = 1 << 26  # floats: a batch with more scores is scored part by part
APART = 64  # floats: arrays of the scratch begin on multiples of it, as matrix products like it


class LayerView(NamedTuple):
    """One layer of the flat parameters; offsets count floats. Plain integers, for kernels."""

    weights: int  # where weights[fan_in, fan_out] begin; by neuron, weights[fan_out, fan_in]
    bias: int  # where bias[fan_out] begins
    fan_in: int  # stored inputs, K
    fan_out: int  # stored outputs, H
    width: int  # real outputs
    activation: int
    output_major: int = (
        0  # 1: weights lie transposed, one row a neuron; the last layer above others
    )


def corrected(optimizer: int, hyper: Hyper, t: int) -> Hyper:
    """`hyper` with Adam's bias correction of update `t`, counted from 1, in its rate.

    Kingma & Ba 2015, end of section 2. Other optimizers need none.
    """
    if optimizer not in BIAS_CORRECTED:
        return hyper
    correction = np.sqrt(1 - hyper.beta2**t) / (1 - hyper.momentum**t)
    return hyper._replace(rate=hyper.rate * float(correction))


class _Layer(NamedTuple):
    """Views of one layer's parameters and their gradient, all in one layout."""

    plan: LayerView
    weights: Floats  # [K, H], by neuron [H, K]
    weight_slots: Slots
    weight_gradient: Floats  # like the weights; [0, 0] where it is made by touched rows
    bias_gradient: Floats  # [H]


class _Workspace(NamedTuple):
    """Scratch for a batch of B rows, of which S are scored at a time: all of them, or a part."""

    batch: int  # B
    gathered: Floats  # [B, K] of the first layer, [B, 0] when rows are read where they lie
    activated: tuple[Floats, ...]  # [B, H] of each layer, [S, H] of the last
    grads: tuple[Floats, ...]  # the same shapes
    values: tuple[Floats, ...]  # `gathered` and `activated`, and what lies between them

    def part(self, rows: slice) -> "_Workspace":
        """What is needed to score `rows` and learn from that, with `activated` of those alone."""
        count = len(self.activated[0][rows])
        activated, grads = (
            (*(each[rows] for each in arrays[:-1]), arrays[-1][:count])
            for arrays in (self.activated, self.grads)
        )
        return self._replace(activated=activated, grads=grads, values=activated[-2:])


class Executor:
    """A network whose parameters lie in one flat array, and scratch for its batches.

    `xp` is the array module of the backend (`Device.xp`); all arrays belong to it. `first` and
    `second` are the optimizer's slots in the layout of `params`, of size 0 where it has none.
    Dense inputs may have fewer columns than the first layer has stored inputs. With `densify`
    sparse inputs are written out and trained on as dense ones: every weight takes every step.

    Where hidden layers lie below, no more than `most_scores` scores are made at a time (but those
    of one row): rows go through the last layer part by part, and their gradients are added up.
    """

    def __init__(
        self,
        kernels: Kernels,
        xp: Any,
        plan: tuple[LayerView, ...],
        params: Floats,
        first: Floats,
        second: Floats,
        densify: bool = False,
        most_scores: int = MAX_SCORES,
    ) -> None:
        self._kernels = kernels
        self._xp = xp
        self._plan = plan
        self._flat = (params, first, second)
        self._densify = densify
        self._most_scores = most_scores
        self._no_bias = xp.zeros(plan[-1].fan_in if plan[-1].output_major else 0, params.dtype)
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
        numbers: Rows | None = None,
    ) -> None:
        """One update from `rows`[B]; adds LOSS, SKIPPED and SKIPPED_ROW to `totals`.

        `hyper` has been through `corrected`; no bias gets l2. `numbers`[B] are what the rows are
        called, if not by their place.
        """
        self._prepare_to_train(inputs)
        space, last = self._forward(inputs, rows), len(self._plan) - 1
        parts = self._parts(space, rows, rows if numbers is None else numbers)
        if len(parts) > 1:
            self._layers[last].weight_gradient.fill(0)
            self._layers[last].bias_gradient.fill(0)
        for part, members, called in parts:
            self._apply(last, part, inputs, members)
            scores, grad, width = part.activated[last], part.grads[last], self._plan[last].width
            self._kernels.loss_gradient(loss, labels, members, called, width, scores, grad, totals)
            self._forget_not_finite(part, totals)
            self._backward(last, part)
            self._differentiate(last, part, inputs, members, optimizer, hyper)
        if len(parts) > 1:
            self._forget_not_finite(space, totals)
        for index in reversed(range(last)):
            self._backward(index, space)
            self._differentiate(index, space, inputs, rows, optimizer, hyper)
        for gradient, slots, weights, decay in self._steps(hyper.l2 > 0):
            exact = hyper if decay else hyper._replace(l2=0.0)
            self._kernels.step(optimizer, exact, gradient, slots, weights)

    def evaluate_batch(
        self, inputs: Inputs, labels: Labels, rows: Rows, loss: int, totals: NDArray[np.float64]
    ) -> None:
        """Add loss and metrics of `rows`[B] to `totals`."""
        last = len(self._plan) - 1
        for part, members, _ in self._parts(self._forward(inputs, rows), rows, rows):
            self._apply(last, part, inputs, members)
            scores, width = part.activated[last], self._plan[last].width
            self._kernels.loss_and_metrics(loss, labels, members, width, scores, totals)

    def scores(self, inputs: Inputs, rows: Rows) -> Floats:
        """Outputs [B, H] for `rows`[B], however many: scratch, good until the next call."""
        space, last = self._forward(inputs, rows, len(rows)), len(self._plan) - 1
        self._apply(last, space, inputs, rows)
        return space.activated[last]

    def reserve(self, batch: int, *, sparse: bool) -> bool:
        """Make room for batches of `batch` rows; True if arrays had to move.

        A step that was recorded before they moved must not be repeated.
        """
        return self._make_room(self._shapes(batch, sparse, self._scored(batch)))

    def _scored(self, batch: int) -> int:
        """Rows of a batch that are scored at a time."""
        if len(self._plan) == 1:
            return batch
        return min(batch, max(1, self._most_scores // self._plan[-1].fan_out))

    def _shapes(self, batch: int, sparse: bool, scored: int) -> list[tuple[int, int]]:
        """Those of all arrays of the scratch, in their order: inputs, activations, gradients."""
        by_rows = sparse and not self._densify
        hidden = [(batch, plan.fan_out) for plan in self._plan[:-1]]
        outputs = [*hidden, (scored, self._plan[-1].fan_out)]
        return [(batch, 0 if by_rows else self._plan[0].fan_in), *outputs, *outputs]

    def _make_room(self, shapes: list[tuple[int, int]]) -> bool:
        """Have scratch for arrays of these shapes; True if it had to move."""
        needed = sum(_round_up(rows * width) for rows, width in shapes)
        if self._space is not None and needed <= self._space.size:
            return False
        self._space = None  # freed before the new is asked for: the device may not hold both
        self._space = self._xp.empty(needed, self._flat[0].dtype)
        return True

    def _scratch(self, batch: int, sparse: bool, scored: int) -> _Workspace:
        """The scratch, cut for `batch` rows of which `scored` are scored at a time."""
        shapes = self._shapes(batch, sparse, scored)
        self._make_room(shapes)
        assert self._space is not None
        arrays, end, layers = [], 0, len(self._plan)
        for rows, width in shapes:
            arrays.append(self._space[end : end + rows * width].reshape(rows, width))
            end += _round_up(rows * width)
        values = sum(_round_up(array.size) for array in arrays[: layers + 1])
        return _Workspace(
            batch,
            arrays[0],
            tuple(arrays[1 : layers + 1]),
            tuple(arrays[layers + 1 :]),
            (self._space[:values],),
        )

    def _parts(
        self, space: _Workspace, rows: Rows, numbers: Rows
    ) -> list[tuple[_Workspace, Rows, Rows]]:
        """What is scored at a time: the whole batch, or parts of it, with rows and numbers."""
        scored = len(space.activated[-1])
        if scored == len(rows):
            return [(space, rows, numbers)]
        parts = [slice(start, start + scored) for start in range(0, len(rows), scored)]
        return [(space.part(part), rows[part], numbers[part]) for part in parts]

    def _forward(self, inputs: Inputs, rows: Rows, scored: int | None = None) -> _Workspace:
        """Run the layers but for the last over `rows`."""
        sparse = len(inputs.indptr) > 0
        scored = self._scored(len(rows)) if scored is None else scored
        space = self._scratch(len(rows), sparse, scored)
        if self._densify or not sparse:
            self._kernels.gather(inputs, rows, space.gathered)
        for index in range(len(self._plan) - 1):
            self._apply(index, space, inputs, rows)
        return space

    def _apply(self, index: int, space: _Workspace, inputs: Inputs, rows: Rows) -> None:
        """One layer over what the layer below has made of `rows`."""
        kernels, plan, params = self._kernels, self._plan[index], self._flat[0]
        weights, bias = _weights(plan, params), params[plan.bias :][: plan.fan_out]
        x = space.activated[index - 1] if index > 0 else space.gathered
        out = space.activated[index]
        if plan.output_major:
            kernels.dense_backward(x, weights, out)
            kernels.add_bias(bias, plan.width, out)
        elif index == 0 and len(inputs.indptr) > 0 and not self._densify:
            kernels.csr_forward(inputs, rows, weights, bias, plan.activation, plan.width, out)
        else:
            kernels.dense_forward(x, weights, bias, plan.activation, plan.width, out)

    def _forget_not_finite(self, space: _Workspace, totals: NDArray[np.float64]) -> None:
        for values in space.values:
            self._kernels.forget_not_finite(totals, values)

    def _backward(self, index: int, space: _Workspace) -> None:
        """From the gradient of a layer's outputs to that of the layer below, weights unchanged."""
        kernels, layer, grad = self._kernels, self._layers[index], space.grads[index]
        kernels.activate_backward(layer.plan.activation, space.activated[index], grad)
        if index == 0:
            return
        below, fan_in = space.grads[index - 1], layer.plan.fan_in
        if layer.plan.output_major:
            kernels.dense_forward(grad, layer.weights, self._no_bias, LINEAR, fan_in, below)
        else:
            kernels.dense_backward(grad, layer.weights, below)
        if len(grad) < space.batch:
            kernels.scale(len(grad) / space.batch, below)

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
            kernels.bias_gradient(grad, layer.bias_gradient)
            return
        x = space.activated[index - 1] if index > 0 else space.gathered
        kernels.bound_rows(optimizer, hyper, space.batch, x, grad)
        left, right = (grad, x) if layer.plan.output_major else (x, grad)
        if len(grad) < space.batch:  # the gradient is of a mean over these rows alone
            fraction = len(grad) / space.batch
            kernels.add_weight_gradient(fraction, left, right, layer.weight_gradient)
            kernels.add_bias_gradient(fraction, grad, layer.bias_gradient)
        else:
            kernels.weight_gradient(left, right, layer.weight_gradient)
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

    def _layer(self, plan: LayerView, start: int) -> _Layer:
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


def _weights(plan: LayerView, flat: Floats) -> Floats:
    """The weights of one layer, a view of the flat array; [0, 0] where that is empty."""
    if flat.size == 0:
        return flat.reshape(0, 0)
    end = plan.weights + plan.fan_in * plan.fan_out
    shape = plan.fan_in, plan.fan_out
    return flat[plan.weights : end].reshape(shape[::-1] if plan.output_major else shape)


def _round_up(floats: int) -> int:
    return -(-floats // APART) * APART
