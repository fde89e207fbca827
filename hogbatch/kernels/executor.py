"""Forward, backward and update of a network on any backend, one batch at a time.

The loop is interpreted; CPU threads run the compiled loops of `hogbatch.kernels.cpu.loops` instead.
Steps may be captured and replayed (`Device.capture`): from the second batch of a size on, nothing
is allocated and no value is copied to the host.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.augmentation import Augmentation
from hogbatch.data.batch import Inputs, Labels
from hogbatch.kernels.backbone import Backbone, PlacedLayer
from hogbatch.kernels.backbone_layers import backbone_of
from hogbatch.kernels.contract import (
    BIAS_CORRECTED,
    LINEAR,
    NO_SCORES,
    TOP,
    TOTALS,
    Floats,
    Hyper,
    Operands,
    Rows,
    RowScores,
    Slots,
)
from hogbatch.kernels.dropout import factor
from hogbatch.kernels.layers import LayerView
from hogbatch.kernels.reference import Kernels
from hogbatch.kernels.scratch import Scratch, ScratchSpace

MAX_SCORES = 1 << 26  # floats; a batch with more scores is scored in parts


def corrected(optimizer: int, hyper: Hyper, t: int) -> Hyper:
    """Return `hyper` with the correction of update `t`, counted from 1, in its rate.

    That is the warm-up, and Adam's correction of its bias (Kingma & Ba 2015, end of section 2).
    """
    correction = t / hyper.warm_up if t < hyper.warm_up else 1.0
    if optimizer in BIAS_CORRECTED:
        correction *= np.sqrt(1 - hyper.beta2**t) / (1 - hyper.momentum**t)
    return hyper._replace(rate=hyper.rate * float(correction))


class Randomness(NamedTuple):
    """The dropout and the augmentation of an update."""

    fraction: float  # of outputs that dropout leaves out
    key: Any  # `dropout.key_of` the update, as a uint32[1] of the backend
    augmentation: Augmentation | None = None


class Executor:
    """Computes a network whose parameters are in one flat array, with scratch for its batches.

    `xp` is the array module of the backend (`Device.xp`); all arrays belong to it. `first` and
    `second` are the optimizer slots in the layout of `params`, of size 0 if the optimizer has none.
    Dense inputs may have fewer columns than the first layer has stored inputs. With `densify`,
    sparse inputs are copied into dense arrays: every update then changes every weight.

    In networks with hidden layers, at most `max_scores` scores are computed at a time (but at least
    those of one row): rows pass the last layer in parts, whose gradients are added up.

    The layers of a `backbone` are below the first of `layers`.
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
        backbone: Sequence[PlacedLayer] = (),
    ) -> None:
        self._kernels = kernels
        self._xp = xp
        self._views = layers
        self._flat = (params, first, second)
        self._densify = densify
        self._max_scores = max_scores
        self._no_vector: Any = params[:0]  # for arguments that are not needed
        self._operand = kernels.operand_type(params.dtype)
        self._operands = params, 0  # parameters as products read them, and the first index
        # Copies by their first index. All are kept, because captured steps write to them.
        self._copies: dict[int, Operands] = {}
        self._no_bias = xp.zeros(layers[-1].fan_in if layers[-1].output_major else 0, self._operand)
        self._sparse: bool | None = None  # the form of inputs that `_gradient` is for
        self._gradient: Floats | None = None  # flat; without weights updated by touched rows
        self._gradients: tuple[tuple[Floats, Floats], ...] = ()  # of weights and bias: views of it
        self._csr_scratch: Any = None
        self._space = ScratchSpace(kernels, xp, layers, params.dtype)
        self._placed = backbone
        # Where the parameters begin that have a gradient; those of a layer by rows have none.
        later = *(at for each in backbone[1:] for at in each.offsets), layers[0].weights
        self._start = later[0] if backbone and backbone[0].layer.by_rows else 0
        self._backbone: Backbone | None = None  # with arrays for the largest batch so far
        self._below: Any = None  # [B, K]: the gradient of the inputs of the first of `layers`

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
        random: Randomness | None = None,
    ) -> None:
        """Make one update from `rows`[B]; add LOSS, SKIPPED and SKIPPED_ROW to `totals`.

        `hyper` is a result of `corrected`; biases have no weight decay. `numbers`[B] are the row
        numbers to report, if they differ from `rows`.
        """
        self._prepare_to_train(inputs)
        numbers = rows if numbers is None else numbers
        space, last = self._forward(inputs, rows, numbers, random), len(self._views) - 1
        kept = 1.0 if random is None else float(factor(random.fraction))
        parts = self._parts(space, rows, numbers)
        if len(parts) > 1:
            for gradient in self._gradients[last]:
                gradient.fill(0)
        for part, members, named in parts:
            self._apply(last, part, inputs, members)
            scores, grad, width = part.activated[last], part.grads[last], self._views[last].width
            self._kernels.loss_gradient(loss, labels, members, named, width, scores, grad, totals)
            self._kernels.forget_not_finite(totals, part.values)
            self._backward(last, part, kept)
            if len(parts) > 1:
                self._add_part(part, optimizer, hyper)
        if len(parts) > 1:
            self._kernels.forget_not_finite(totals, space.values)
        for index in reversed(range(last)):
            self._backward(index, space, kept)
        if self._backbone is not None:
            self._backward_backbone(self._backbone, space, totals)
            self._backbone.step_rows(optimizer, hyper, len(rows), self._flat)
        self._differentiate(len(parts) == 1, space, inputs, rows, optimizer, hyper)
        for gradient, slots, weights, decay in self._steps(hyper.l2 > 0):
            exact = hyper if decay else hyper._replace(l2=0.0)
            self._kernels.step(optimizer, exact, gradient, slots, weights)

    def evaluate_batch(
        self,
        inputs: Inputs,
        labels: Labels,
        rows: Rows,
        loss: int,
        totals: NDArray[np.float64],
        stored: RowScores = NO_SCORES,
    ) -> None:
        """Add loss and metrics of `rows`[B] to `totals`, and store their scores.

        `stored` are arrays of the backend for the B rows of the batch, or NO_SCORES.
        """
        last, start = len(self._views) - 1, 0
        for part, members, _ in self._parts(self._forward(inputs, rows, rows), rows, rows):
            self._apply(last, part, inputs, members)
            scores, width = part.activated[last], self._views[last].width
            self._kernels.loss_and_metrics(loss, labels, members, width, scores, totals)
            self._store(scores[:, :width], start, stored)
            start += len(members)

    def output_gradients(
        self,
        inputs: Inputs,
        rows: Rows,
        differentiate: Callable[[Floats, Operands, NDArray[np.float64]], None],
        random: Randomness | None = None,
    ) -> list[tuple[Operands, Operands]]:
        """Return the inputs x[B, K] and the gradients of the outputs, grad[B, H], of each layer.

        `differentiate`(outputs, grad, totals) sets those of the last layer, as
        `Kernels.loss_gradient` does for scores. `rows`[B] must have at most `max_scores` scores. x
        of sparse rows is [B, 0]. The arrays are valid until the next call. There is no `backbone`.
        """
        space, last = self._forward(inputs, rows, rows, random), len(self._views) - 1
        self._apply(last, space, inputs, rows)
        totals = self._xp.zeros(TOTALS)
        differentiate(space.activated[last], space.grads[last], totals)
        self._kernels.forget_not_finite(totals, space.values)
        kept = 1.0 if random is None else float(factor(random.fraction))
        for index in reversed(range(last + 1)):
            self._backward(index, space, kept)
        return [(self._inputs(index, space), space.grads[index]) for index in range(last + 1)]

    def _store(self, scores: Floats, start: int, stored: RowScores) -> None:
        """Store scores[B, C] of the rows from `start` on; may overwrite them."""
        part = slice(start, start + len(scores))
        if stored.scores.size:
            stored.scores[part] = scores
        if not stored.best.size:
            return
        stored.best[part] = -1
        each = self._xp.arange(len(scores))
        for rank in range(min(TOP, scores.shape[1])):
            best = scores.argmax(axis=1)
            stored.best[part, rank] = best
            scores[each, best] = -np.inf

    def reserve(self, batch: int, *, sparse: bool) -> bool:
        """Allocate scratch for batches of `batch` rows; return True if arrays were moved.

        Steps that were captured before must then not be replayed.
        """
        by_rows = sparse and not self._densify
        moved = self._space.reserve(batch, self._scored(batch), by_rows=by_rows)
        if not self._placed or (self._backbone is not None and self._backbone.rows >= batch):
            return moved
        xp, dtype, self._backbone = self._xp, self._flat[0].dtype, None  # freed first
        self._below = xp.empty((batch, self._views[0].fan_in), dtype)
        self._backbone = backbone_of(self._placed, self._kernels, xp, dtype, batch)
        return True

    def _scored(self, batch: int) -> int:
        """Return the number of rows that are scored at a time."""
        if len(self._views) == 1:
            return batch
        return min(batch, max(1, self._max_scores // self._views[-1].fan_out))

    def _parts(self, space: Scratch, rows: Rows, numbers: Rows) -> list[tuple[Scratch, Rows, Rows]]:
        """Divide a batch into parts that are scored at a time, with their rows and numbers."""
        scored = len(space.activated[-1])
        if scored == len(rows):
            return [(space, rows, numbers)]
        parts = [slice(start, start + scored) for start in range(0, len(rows), scored)]
        return [(space.part(part), rows[part], numbers[part]) for part in parts]

    def _forward(
        self,
        inputs: Inputs,
        rows: Rows,
        numbers: Rows,
        random: Randomness | None = None,
    ) -> Scratch:
        """Compute all layers except the last for `rows`; `numbers`[B] are theirs in the set."""
        by_rows, last = len(inputs.indptr) > 0 and not self._densify, len(self._views) - 1
        space = self._space.arrays(len(rows), self._scored(len(rows)), by_rows=by_rows)
        self._round_params(by_rows)
        if self._placed:
            self._forward_backbone(inputs, rows, numbers, random, space.gathered)
        elif not by_rows:
            self._kernels.gather(inputs, rows, space.gathered)
        for index in range(last):
            self._apply(index, space, inputs, rows)
            if random is not None and random.fraction > 0:
                width, out = self._views[index].width, space.activated[index]
                self._kernels.drop(random.fraction, random.key, index, numbers, width, out)
        return space

    def _forward_backbone(
        self, inputs: Inputs, rows: Rows, numbers: Rows, random: Randomness | None, out: Operands
    ) -> None:
        """Compute the inputs out[B, K] of the dense layers."""
        self.reserve(len(rows), sparse=False)
        layers = self._backbone
        assert layers is not None
        x = layers.inputs(len(rows))
        if random is None or random.augmentation is None:
            self._kernels.gather(inputs, rows, x)
        else:
            given = random.augmentation, random.key
            self._kernels.gather_augmented(inputs, rows, numbers, *given, x)
        found = layers.forward(self._flat[0], len(rows))
        out[:, : found.shape[1]], out[:, found.shape[1] :] = found, 0

    def _backward_backbone(
        self, layers: Backbone, space: Scratch, totals: NDArray[np.float64]
    ) -> None:
        """Compute the gradients of the layers below the dense layers."""
        assert self._gradient is not None
        view, rows = self._views[0], space.batch
        below, last = self._below[:rows], layers.grad(rows)
        given = self._operands_of(view)[0], layers.activation, space.gathered
        self._kernels.dense_backward(space.grads[0], *given, below)
        last[:] = below[:, : last.shape[1]]
        for values in layers.values:
            self._kernels.forget_not_finite(totals, values)
        layers.backward(self._flat[0], rows, self._gradient)

    def _round_params(self, by_rows: bool) -> None:
        """Copy the parameters of matrix products, if their operands have another type.

        They may have changed since the last batch, by a merge.
        """
        params = self._flat[0]
        if self._operand == params.dtype or (by_rows and len(self._views) == 1):
            return
        start = self._views[0].bias if by_rows else 0
        if start not in self._copies:
            self._copies[start] = self._xp.empty(params.size - start, self._operand)
        self._operands = self._copies[start], start
        self._kernels.to_operands(params[start:], self._copies[start])

    def _operands_of(self, view: LayerView) -> tuple[Operands, Operands]:
        """Return the weights and the bias of one layer, as products read them."""
        flat, start = self._operands
        here = view._replace(weights=view.weights - start, bias=view.bias - start)
        return weights_of(here, flat), flat[here.bias :][: view.fan_out]

    def _apply(self, index: int, space: Scratch, inputs: Inputs, rows: Rows) -> None:
        """Compute one layer from the outputs of that below."""
        kernels, view, last = self._kernels, self._views[index], index == len(self._views) - 1
        x, out = self._inputs(index, space), space.activated[index]
        params = self._flat[0]
        bias, kind = params[view.bias :][: view.fan_out], (view.activation, view.width)
        if index == 0 and len(inputs.indptr) > 0 and not self._densify:
            kernels.csr_forward(inputs, rows, weights_of(view, params), bias, *kind, out)
            return
        weights, rounded_bias = self._operands_of(view)
        if view.output_major:
            kernels.output_major_forward(x, weights, bias, view.width, out)
        else:  # scores are not rounded
            kernels.dense_forward(x, weights, bias if last else rounded_bias, *kind, out)

    def _inputs(self, index: int, space: Scratch) -> Operands:
        """Return the inputs of one layer, unless they are sparse."""
        return space.activated[index - 1] if index > 0 else space.gathered

    def _backward(self, index: int, space: Scratch, kept: float) -> None:
        """Compute the gradient of the layer below, with the weights before the update.

        `kept` is the factor of outputs that dropout keeps.
        """
        if index == 0:
            return
        kernels, view, grad = self._kernels, self._views[index], space.grads[index]
        weights, _ = self._operands_of(view)
        below, kind = space.grads[index - 1], self._views[index - 1].activation
        activated = space.activated[index - 1]
        if view.output_major:
            linear = self._no_bias, LINEAR, view.fan_in
            kernels.dense_forward(grad, weights, *linear, below)
            kernels.activate_backward(kind, activated, below)
        else:
            kernels.dense_backward(grad, weights, kind, activated, below)
        if (fraction := kept * len(grad) / space.batch) != 1:
            kernels.scale(fraction, below)

    def _differentiate(
        self,
        with_last: bool,
        space: Scratch,
        inputs: Inputs,
        rows: Rows,
        optimizer: int,
        hyper: Hyper,
    ) -> None:
        """Compute the gradients of the layers; update touched rows of a sparse layer directly.

        When the gradients of the outputs of all layers are complete, one operation bounds them.
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
            view, grad = self._views[0], space.grads[0]
            weights, *slots = (weights_of(view, flat) for flat in self._flat)
            batch = optimizer, hyper, inputs, rows, grad
            kernels.csr_bound_rows(*batch)
            self._sparse = None  # a step that fails leaves its scratch unusable
            kernels.csr_step(*batch, self._csr_scratch, Slots(*slots), weights)
            self._sparse = True
            kernels.bias_gradient(grad, self._gradients[0][1])

    def _differentiate_layer(self, index: int, space: Scratch) -> None:
        """Compute the gradient of one layer with dense inputs."""
        kernels, grad, x = self._kernels, space.grads[index], self._inputs(index, space)
        weights, bias = self._gradients[index]
        if self._views[index].output_major:
            kernels.weight_gradient(grad, x, weights, self._no_vector)
            kernels.bias_gradient(grad, bias)
        else:
            kernels.weight_gradient(x, grad, weights, bias)

    def _add_part(self, part: Scratch, optimizer: int, hyper: Hyper) -> None:
        """Add the gradient of the last layer from some rows; `grads` are of the mean over them."""
        kernels, (weights, bias), grad = self._kernels, self._gradients[-1], part.grads[-1]
        x, fraction = part.activated[-2], len(grad) / part.batch
        kernels.bound_rows(optimizer, hyper, part.batch, x, grad)
        left, right = (grad, x) if self._views[-1].output_major else (x, grad)
        kernels.add_weight_gradient(fraction, left, right, weights)
        kernels.add_bias_gradient(fraction, grad, bias)

    def _steps(self, decayed: bool) -> Iterator[tuple[Floats, Slots, Floats, bool]]:
        """Yield gradient, slots, parameters, and whether they are decayed, for the optimizer steps.

        One step for all parameters; with weight decay, separate steps for biases, which have none.
        """
        assert self._gradient is not None
        start = self._flat[0].size - self._gradient.size
        params, first, second = (flat[start:] if flat.size else flat for flat in self._flat)
        cuts = {0, params.size}
        sizes = {view.bias - start: view.fan_out for view in self._views}
        for layer, offsets in self._placed:
            for offset, shape in zip(offsets, layer.tensors().values(), strict=True):
                if len(shape) == 1:
                    sizes[offset - start] = math.prod(shape)
        if decayed:
            cuts.update(sizes, (begin + size for begin, size in sizes.items()))
        edges, biases = sorted(cuts), set(sizes)
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
        start = views[0].bias if sparse else self._start
        self._gradient = None  # freed before the new one is allocated
        self._gradient = self._xp.zeros(params.size - start, params.dtype)
        self._csr_scratch = None
        if sparse:
            self._csr_scratch = self._kernels.csr_scratch(views[0].fan_in, views[0].fan_out)
        self._gradients = tuple(self._gradients_of(view, start) for view in views)
        self._sparse = sparse

    def _gradients_of(self, view: LayerView, start: int) -> tuple[Floats, Floats]:
        """Return the views of the flat gradient, which begins at params[start], for one layer."""
        flat: Any = self._gradient
        here = view._replace(weights=view.weights - start, bias=view.bias - start)
        weights = weights_of(here, flat if here.weights >= 0 else flat[:0])  # or by touched rows
        return weights, flat[here.bias :][: view.fan_out]


def weights_of(view: LayerView, flat: Floats) -> Floats:
    """Return the weights of one layer as a view of the flat array; [0, 0] if that is empty."""
    if flat.size == 0:
        return flat.reshape(0, 0)
    end = view.weights + view.fan_in * view.fan_out
    shape = view.fan_in, view.fan_out
    return flat[view.weights : end].reshape(shape[::-1] if view.output_major else shape)
