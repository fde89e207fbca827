"""Forward, backward and update of a network on any backend, one batch at a time.

The loop is interpreted. It is meant for batches that keep a device busy for longer than about
twenty Python calls, and for steps that are captured once and replayed without Python
(`Device.capture`): from the second batch of a size on, nothing is allocated and no value is copied
to the host. CPU threads run the compiled loops of `hogbatch.kernels.cpu.loops` instead.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Inputs, Labels
from hogbatch.kernels.contract import (
    BIAS_CORRECTED,
    LINEAR,
    RELU,
    Floats,
    Hyper,
    Kernels,
    Mask,
    Rows,
    Slots,
)
from hogbatch.kernels.layers import LayerView

MAX_SCORES = 1 << 26  # floats; a batch with more scores is scored in parts
ALIGNMENT = 64  # floats: offsets of scratch arrays are multiples of it, for matrix products


def corrected(optimizer: int, hyper: Hyper, t: int) -> Hyper:
    """Return `hyper` with Adam's bias correction of update `t`, counted from 1, in its rate.

    Kingma & Ba 2015, end of section 2. Other optimizers have no correction.
    """
    if optimizer not in BIAS_CORRECTED:
        return hyper
    correction = np.sqrt(1 - hyper.beta2**t) / (1 - hyper.momentum**t)
    return hyper._replace(rate=hyper.rate * float(correction))


class _LayerArrays(NamedTuple):
    """The parameters of one layer, their slots and their gradient: views of the flat arrays."""

    view: LayerView
    weights: Floats  # [K, H]; output-major: [H, K]
    weight_slots: Slots
    weight_gradient: Floats  # like the weights; [0, 0] if touched rows are updated directly
    bias_gradient: Floats  # [H]


class _Scratch(NamedTuple):
    """Scratch arrays for a batch of B rows, S of which are scored at a time."""

    batch: int  # B
    gathered: Floats  # [B, K] of the first layer; [B, 0] if rows are not copied
    activated: tuple[Floats, ...]  # [B, H] of each layer, [S, H] of the last
    grads: tuple[Floats, ...]  # the same shapes
    masks: tuple[Mask, ...]  # [B, n] of each layer; [0, 0] where there is none
    values: tuple[Floats, ...]  # `gathered` and `activated`, with the gaps between them

    def part(self, rows: slice) -> "_Scratch":
        """Return the scratch for scoring and learning from `rows` of the batch."""
        count = len(self.activated[0][rows])
        activated, grads = (
            (*(each[rows] for each in arrays[:-1]), arrays[-1][:count])
            for arrays in (self.activated, self.grads)
        )
        masks = tuple(mask[rows] for mask in self.masks)
        return self._replace(activated=activated, grads=grads, masks=masks, values=activated[-2:])


class Executor:
    """Computes a network whose parameters are in one flat array, with scratch for its batches.

    `xp` is the array module of the backend (`Device.xp`); all arrays belong to it. `first` and
    `second` are the optimizer slots in the layout of `params`, of size 0 if the optimizer has none.
    Dense inputs may have fewer columns than the first layer has stored inputs. With `densify`,
    sparse inputs are copied into dense arrays: every update then changes every weight.

    In networks with hidden layers, at most `max_scores` scores are computed at a time (but at least
    those of one row): rows pass the last layer in parts, whose gradients are added up.
    """

    def __init__(
        self,
        kernels: Kernels,
        xp: Any,
        layers: tuple[LayerView, ...],
        params: Floats,
        first: Floats,
        second: Floats,
        densify: bool = False,
        max_scores: int = MAX_SCORES,
    ) -> None:
        self._kernels = kernels
        self._xp = xp
        self._views = layers
        self._flat = (params, first, second)
        self._densify = densify
        self._max_scores = max_scores
        self._no_vector: Any = params[:0]  # where an operation takes no array
        self._no_matrix: Any = self._no_vector.reshape(0, 0)
        self._no_bias = xp.zeros(layers[-1].fan_in if layers[-1].output_major else 0, params.dtype)
        self._sparse: bool | None = None  # the form of inputs that `_layers` are for
        self._layers: tuple[_LayerArrays, ...] = ()
        self._gradient: Floats | None = None  # flat; without weights updated by touched rows
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
        """Make one update from `rows`[B]; add LOSS, SKIPPED and SKIPPED_ROW to `totals`.

        `hyper` is a result of `corrected`; biases have no weight decay. `numbers`[B] are the row
        numbers to report, if they differ from `rows`.
        """
        self._prepare_to_train(inputs)
        space, last = self._forward(inputs, rows, masked=True), len(self._views) - 1
        parts = self._parts(space, rows, rows if numbers is None else numbers)
        if len(parts) > 1:
            self._layers[last].weight_gradient.fill(0)
            self._layers[last].bias_gradient.fill(0)
        for part, members, named in parts:
            self._apply(last, part, inputs, members)
            scores, grad, width = part.activated[last], part.grads[last], self._views[last].width
            self._kernels.loss_gradient(loss, labels, members, named, width, scores, grad, totals)
            self._forget_not_finite(part, totals)
            self._backward(last, part)
            if len(parts) > 1:
                self._add_part(part, optimizer, hyper)
        if len(parts) > 1:
            self._forget_not_finite(space, totals)
        for index in reversed(range(last)):
            self._backward(index, space)
        self._differentiate(len(parts) == 1, space, inputs, rows, optimizer, hyper)
        for gradient, slots, weights, decay in self._steps(hyper.l2 > 0):
            exact = hyper if decay else hyper._replace(l2=0.0)
            self._kernels.step(optimizer, exact, gradient, slots, weights)

    def evaluate_batch(
        self, inputs: Inputs, labels: Labels, rows: Rows, loss: int, totals: NDArray[np.float64]
    ) -> None:
        """Add loss and metrics of `rows`[B] to `totals`."""
        last = len(self._views) - 1
        for part, members, _ in self._parts(self._forward(inputs, rows), rows, rows):
            self._apply(last, part, inputs, members)
            scores, width = part.activated[last], self._views[last].width
            self._kernels.loss_and_metrics(loss, labels, members, width, scores, totals)

    def scores(self, inputs: Inputs, rows: Rows) -> Floats:
        """Return scores[B, H] of any number of `rows`[B]; valid until the next call."""
        space, last = self._forward(inputs, rows, len(rows)), len(self._views) - 1
        self._apply(last, space, inputs, rows)
        return space.activated[last]

    def reserve(self, batch: int, *, sparse: bool) -> bool:
        """Allocate scratch for batches of `batch` rows; return True if arrays were moved.

        Steps that were captured before must then not be replayed.
        """
        return self._allocate(self._shapes(batch, sparse, self._scored(batch)))

    def _scored(self, batch: int) -> int:
        """Return the number of rows that are scored at a time."""
        if len(self._views) == 1:
            return batch
        return min(batch, max(1, self._max_scores // self._views[-1].fan_out))

    def _shapes(self, batch: int, sparse: bool, scored: int) -> list[tuple[int, int]]:
        """Return the shapes of the scratch arrays: inputs, activations, gradients, masks."""
        by_rows = sparse and not self._densify
        hidden = [(batch, view.fan_out) for view in self._views[:-1]]
        outputs = [*hidden, (scored, self._views[-1].fan_out)]
        masks = [(batch, self._mask_floats(index, by_rows)) for index in range(len(hidden))]
        return [(batch, 0 if by_rows else self._views[0].fan_in), *outputs, *outputs, *masks]

    def _mask_floats(self, index: int, by_rows: bool) -> int:
        """Return the length of a row of the mask of one layer, in floats."""
        view = self._views[index]
        masked = view.activation == RELU and not (by_rows and index == 0)
        return self._kernels.mask_bytes(view.fan_out) // 4 if masked else 0

    def _allocate(self, shapes: list[tuple[int, int]]) -> bool:
        """Allocate scratch for arrays of these shapes; return True if it was moved."""
        needed = sum(_round_up(rows * width) for rows, width in shapes)
        if self._space is not None and needed <= self._space.size:
            return False
        self._space = None  # freed first: the device may not have memory for both
        self._space = self._xp.empty(needed, self._flat[0].dtype)
        return True

    def _scratch(self, batch: int, sparse: bool, scored: int) -> _Scratch:
        """Return scratch for `batch` rows, `scored` of which are scored at a time."""
        shapes = self._shapes(batch, sparse, scored)
        self._allocate(shapes)
        assert self._space is not None
        arrays, end, layers = [], 0, len(self._views)
        for rows, width in shapes:
            arrays.append(self._space[end : end + rows * width].reshape(rows, width))
            end += _round_up(rows * width)
        values = sum(_round_up(array.size) for array in arrays[: layers + 1])
        return _Scratch(
            batch,
            arrays[0],
            tuple(arrays[1 : layers + 1]),
            tuple(arrays[layers + 1 : 2 * layers + 1]),
            (*map(self._as_mask, arrays[2 * layers + 1 :]), self._no_matrix),
            (self._space[:values],),
        )

    def _as_mask(self, array: Floats) -> Mask:
        return array.view(np.uint8) if array.size > 0 else self._no_matrix

    def _parts(
        self, space: _Scratch, rows: Rows, numbers: Rows
    ) -> list[tuple[_Scratch, Rows, Rows]]:
        """Divide a batch into parts that are scored at a time, with their rows and numbers."""
        scored = len(space.activated[-1])
        if scored == len(rows):
            return [(space, rows, numbers)]
        parts = [slice(start, start + scored) for start in range(0, len(rows), scored)]
        return [(space.part(part), rows[part], numbers[part]) for part in parts]

    def _forward(
        self, inputs: Inputs, rows: Rows, scored: int | None = None, *, masked: bool = False
    ) -> _Scratch:
        """Compute all layers except the last for `rows`; with `masked`, also their masks."""
        sparse, layers = len(inputs.indptr) > 0, len(self._views)
        scored = self._scored(len(rows)) if scored is None else scored
        space = self._scratch(len(rows), sparse, scored)
        if not masked:
            space = space._replace(masks=(self._no_matrix,) * layers)
        if self._densify or not sparse:
            self._kernels.gather(inputs, rows, space.gathered)
        written = [self._apply(index, space, inputs, rows) for index in range(layers - 1)]
        masks = zip(space.masks, [*written, False], strict=True)
        return space._replace(
            masks=tuple(mask if found else self._no_matrix for mask, found in masks)
        )

    def _apply(self, index: int, space: _Scratch, inputs: Inputs, rows: Rows) -> bool:
        """Compute one layer from the outputs of the layer below; return if its mask was written."""
        kernels, view, params = self._kernels, self._views[index], self._flat[0]
        weights, bias = _weights(view, params), params[view.bias :][: view.fan_out]
        x, out, mask = self._inputs(index, space), space.activated[index], space.masks[index]
        layer = weights, bias, view.activation, view.width
        if view.output_major:
            kernels.dense_backward(x, weights, LINEAR, self._no_matrix, self._no_matrix, out)
            kernels.add_bias(bias, view.width, out)
            return False
        if index == 0 and len(inputs.indptr) > 0 and not self._densify:
            kernels.csr_forward(inputs, rows, *layer, out)
            return False
        return kernels.dense_forward(x, *layer, mask, out)

    def _inputs(self, index: int, space: _Scratch) -> Floats:
        """Return the inputs of one layer, unless they are sparse."""
        return space.activated[index - 1] if index > 0 else space.gathered

    def _forget_not_finite(self, space: _Scratch, totals: NDArray[np.float64]) -> None:
        for values in space.values:
            self._kernels.forget_not_finite(totals, values)

    def _backward(self, index: int, space: _Scratch) -> None:
        """Compute the gradient of the layer below, with the weights before the update."""
        if index == 0:
            return
        kernels, layer, grad = self._kernels, self._layers[index], space.grads[index]
        below, fan_in = space.grads[index - 1], layer.view.fan_in
        kind, activated = self._views[index - 1].activation, space.activated[index - 1]
        if layer.view.output_major:
            linear = self._no_bias, LINEAR, fan_in
            kernels.dense_forward(grad, layer.weights, *linear, self._no_matrix, below)
            kernels.activate_backward(kind, activated, below)
        else:
            mask = space.masks[index - 1]
            kernels.dense_backward(grad, layer.weights, kind, activated, mask, below)
        if len(grad) < space.batch:
            kernels.scale(len(grad) / space.batch, below)

    def _differentiate(
        self,
        with_last: bool,
        space: _Scratch,
        inputs: Inputs,
        rows: Rows,
        optimizer: int,
        hyper: Hyper,
    ) -> None:
        """Compute the gradients of the layers; update touched rows of a sparse layer directly.

        The gradients of the outputs, complete for all layers, are bounded in one operation.
        """
        kernels, count = self._kernels, len(self._views) - (not with_last)
        dense = range(1 if self._sparse else 0, count)
        if len(dense) > 0:
            x = tuple(self._inputs(index, space) for index in dense)
            grads = tuple(space.grads[index] for index in dense)
            kernels.bound_layers(optimizer, hyper, space.batch, x, grads)
        for index in dense:
            self._differentiate_layer(index, space)
        if self._sparse:
            layer, grad = self._layers[0], space.grads[0]
            kernels.csr_bound_rows(optimizer, hyper, inputs, rows, grad)
            kernels.csr_step(
                *(optimizer, hyper, inputs, rows, grad),
                *(self._csr_scratch, layer.weight_slots, layer.weights),
            )
            kernels.bias_gradient(grad, layer.bias_gradient)

    def _differentiate_layer(self, index: int, space: _Scratch) -> None:
        """Compute the gradient of one layer with dense inputs."""
        kernels, layer, grad = self._kernels, self._layers[index], space.grads[index]
        x = self._inputs(index, space)
        if layer.view.output_major:
            kernels.weight_gradient(grad, x, layer.weight_gradient, self._no_vector)
            kernels.bias_gradient(grad, layer.bias_gradient)
        else:
            kernels.weight_gradient(x, grad, layer.weight_gradient, layer.bias_gradient)

    def _add_part(self, part: _Scratch, optimizer: int, hyper: Hyper) -> None:
        """Add the gradient of the last layer from some rows; their gradient is of their mean."""
        kernels, layer, grad = self._kernels, self._layers[-1], part.grads[-1]
        x, fraction = part.activated[-2], len(grad) / part.batch
        kernels.bound_rows(optimizer, hyper, part.batch, x, grad)
        left, right = (grad, x) if layer.view.output_major else (x, grad)
        kernels.add_weight_gradient(fraction, left, right, layer.weight_gradient)
        kernels.add_bias_gradient(fraction, grad, layer.bias_gradient)

    def _steps(self, decayed: bool) -> Iterator[tuple[Floats, Slots, Floats, bool]]:
        """Yield gradient, slots, parameters, and whether they are decayed, for the optimizer steps.

        One step for all parameters; with weight decay, separate steps for biases, which have none.
        """
        assert self._gradient is not None
        start = self._flat[0].size - self._gradient.size
        params, first, second = (flat[start:] if flat.size else flat for flat in self._flat)
        cuts = {0, params.size}
        if decayed:
            cuts.update(view.bias - start for view in self._views)
            cuts.update(view.bias - start + view.fan_out for view in self._views)
        edges = sorted(cuts)
        biases = {view.bias - start for view in self._views}
        for begin, end in pairwise(edges):
            part = slice(begin, end)
            slots = Slots(first[part], second[part])
            yield self._gradient[part], slots, params[part], begin not in biases or not decayed

    def _prepare_to_train(self, inputs: Inputs) -> None:
        """Allocate the arrays that only training needs, for sparse or dense inputs."""
        sparse = len(inputs.indptr) > 0 and not self._densify
        if sparse == self._sparse:
            return
        params, views = self._flat[0], self._views
        start = views[0].bias if sparse else 0
        self._gradient = None  # freed before the new one is allocated
        self._gradient = self._xp.zeros(params.size - start, params.dtype)
        self._csr_scratch = None
        if sparse:
            self._csr_scratch = self._kernels.csr_scratch(views[0].fan_in, views[0].fan_out)
        self._layers = tuple(self._arrays(view, start) for view in views)
        self._sparse = sparse

    def _arrays(self, view: LayerView, start: int) -> _LayerArrays:
        """Return the arrays of one layer; the flat gradient begins at params[start]."""
        assert self._gradient is not None
        params, first, second = self._flat
        gradient = params[:0].reshape(0, 0)
        if view.weights >= start:
            gradient = _weights(view._replace(weights=view.weights - start), self._gradient)
        return _LayerArrays(
            view=view,
            weights=_weights(view, params),
            weight_slots=Slots(_weights(view, first), _weights(view, second)),
            weight_gradient=gradient,
            bias_gradient=self._gradient[view.bias - start :][: view.fan_out],
        )


def _weights(view: LayerView, flat: Floats) -> Floats:
    """Return the weights of one layer as a view of the flat array; [0, 0] if that is empty."""
    if flat.size == 0:
        return flat.reshape(0, 0)
    end = view.weights + view.fan_in * view.fan_out
    shape = view.fan_in, view.fan_out
    return flat[view.weights : end].reshape(shape[::-1] if view.output_major else shape)


def _round_up(floats: int) -> int:
    return -(-floats // ALIGNMENT) * ALIGNMENT
