"""What a network is: a stack of dense layers, and where its parameters lie in one flat array."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hogbatch.errors import UsageError
from hogbatch.kernels.contract import ACTIVATIONS
from hogbatch.kernels.executor import LayerView
from hogbatch.model.losses import LOSSES
from hogbatch.store.layout import Shape, stored_width, tensor_offsets

Floats = NDArray[np.float32]

# Of networks with their outputs by neuron; measured (docs/slide.md).
FIRST_SIGNAL = 0.1
FIRST_OUTPUT = 0.2
DRAWN = 1 << 18  # random cells at a time, so that no second copy of a weight is needed


@dataclass(frozen=True, slots=True)
class DenseLayer:
    """f(x @ weight[fan_in, width] + bias[width]), in real widths.

    With `output_major` the weight lies transposed, [width, fan_in]: one row a neuron. Only the last
    layer above hidden ones can.
    """

    fan_in: int
    width: int
    activation: str
    output_major: bool = False


@dataclass(frozen=True, slots=True)
class Tensor:
    """One weight or bias: `shape` is what the model means, `stored` what lies in memory."""

    name: str  # "layers.0.weight", "layers.0.bias", ...
    shape: Shape
    stored: Shape
    offset: int  # floats before it in the flat parameters

    def view(self, params: Floats) -> Floats:
        """The real cells of the tensor in params[P]; writes go through."""
        cells = params[self.offset : self.offset + math.prod(self.stored)].reshape(self.stored)
        return cells[tuple(slice(size) for size in self.shape)]


@dataclass(frozen=True, slots=True)
class Network:
    """A stack of dense layers over `features` inputs; no hidden layer makes a linear model.

    Parameters are params[P], float32: weights [in, out] ([out, in] of a layer by neuron) and
    biases, each 64-byte aligned, widths padded for SIMD. Padding cells are zero, and training keeps
    them so.
    """

    features: int
    layers: tuple[DenseLayer, ...]
    loss: str

    @classmethod
    def build(
        cls,
        features: int,
        hidden: tuple[int, ...],
        outputs: int,
        activation: str,
        loss: str,
        output_major: bool = False,
    ) -> "Network":
        """Hidden layers of these widths with `activation`, then `outputs` linear scores.

        `output_major` says how the weights of the scores lie. UsageError for a name that does not
        exist, a width below 1, or scores by neuron without a hidden layer.
        """
        widths = (features, *hidden, outputs)
        if min(widths) < 1:
            raise UsageError(f"a layer must have at least 1 unit; got widths {widths}")
        for name, known in ((activation, ACTIVATIONS), (loss, LOSSES)):
            if name not in known:
                raise UsageError(f"expected one of {', '.join(known)}; got {name!r}")
        if output_major and not hidden:
            raise UsageError(
                "weights by neuron need a hidden layer below them; got no hidden layers"
            )
        layers = [DenseLayer(fan_in, width, activation) for fan_in, width in pairwise(widths[:-1])]
        layers.append(DenseLayer(widths[-2], outputs, "linear", output_major))
        return cls(features, tuple(layers), loss)

    @property
    def outputs(self) -> int:
        """C, the real width of the last layer."""
        return self.layers[-1].width

    @property
    def widths(self) -> str:
        """Those of all layers, for people: "123-512-1"."""
        return "-".join([*(str(layer.fan_in) for layer in self.layers), str(self.outputs)])

    @property
    def parameters(self) -> int:
        """P, the floats of the flat parameters, padding included."""
        return tensor_offsets(stored for _, _, stored in self._shapes())[1]

    def tensors(self) -> tuple[Tensor, ...]:
        """Weight and bias of each layer in turn."""
        shapes = self._shapes()
        offsets, _ = tensor_offsets(stored for _, _, stored in shapes)
        return tuple(Tensor(*each, offset) for each, offset in zip(shapes, offsets, strict=True))

    def place(self, index: int) -> str:
        """Which cell params[index] is: "layers.1.weight[3, 5]", or "padding of layers.1.weight".

        IndexError if it is none of params[P].
        """
        if not 0 <= index < self.parameters:
            raise IndexError(f"expected an index below {self.parameters}; got {index}")
        tensor = [tensor for tensor in self.tensors() if tensor.offset <= index][-1]
        beyond = index - tensor.offset
        if beyond < math.prod(tensor.stored):
            cell = [int(at) for at in np.unravel_index(beyond, tensor.stored)]
            if all(at < size for at, size in zip(cell, tensor.shape, strict=True)):
                return f"{tensor.name}{cell}"
        return f"padding of {tensor.name}"

    def plan(self) -> tuple[LayerView, ...]:
        """The layers as kernels see them."""
        tensors = self.tensors()
        plans = []
        for layer, weight, bias in zip(self.layers, tensors[::2], tensors[1::2], strict=True):
            fan_in, fan_out = weight.stored[::-1] if layer.output_major else weight.stored
            kind = ACTIVATIONS[layer.activation], int(layer.output_major)
            plans.append(LayerView(weight.offset, bias.offset, fan_in, fan_out, layer.width, *kind))
        return tuple(plans)

    def initialise(self, params: Floats, seed: int, mean_square: float | None = None) -> None:
        """Fill params[P] with a start for training; the same seed gives the same numbers.

        Biases are zero, and so is a linear model: its loss is convex. `mean_square` is the mean
        over rows of the squared norm of the inputs, if known; see `_deviations`.
        """
        params[:] = 0
        if len(self.layers) == 1:
            return
        random = np.random.default_rng(seed)
        deviations = self._deviations(mean_square)
        for deviation, weight in zip(deviations, self.tensors()[::2], strict=True):
            rows, width = weight.shape
            together = max(1, DRAWN // width)  # the numbers are the same as if all came at once
            for start in range(0, rows, together):
                cells = weight.view(params)[start : start + together]
                cells[:] = random.standard_normal(cells.shape, np.float32)
                cells *= np.float32(deviation)

    def _deviations(self, mean_square: float | None) -> list[float]:
        """Standard deviation of each layer's first weights.

        Those of `_deviation`, but for a network with its outputs by neuron: these are found by the
        angle between their weights and the row, which a weak signal would leave to noise. So a
        row's first pre-activations are FIRST_SIGNAL or more (rows of many features and norm 1 would
        have less), and an output's weights do not shrink with the number of outputs.
        """
        deviations = [_deviation(layer) for layer in self.layers]
        if self.layers[-1].output_major:
            if mean_square:
                deviations[0] = max(deviations[0], FIRST_SIGNAL / math.sqrt(mean_square))
            deviations[-1] = FIRST_OUTPUT / math.sqrt(self.layers[-1].fan_in)
        return deviations

    def to_stored(self, tensors: Mapping[str, Floats], params: Floats) -> None:
        """Copy real tensors by name into params[P]; padding becomes zero."""
        params[:] = 0
        for tensor in self.tensors():
            tensor.view(params)[:] = tensors[tensor.name]

    def from_stored(self, params: Floats) -> dict[str, Floats]:
        """The real tensors in params[P], by name: views."""
        return {tensor.name: tensor.view(params) for tensor in self.tensors()}

    def _shapes(self) -> list[tuple[str, Shape, Shape]]:
        """Name, real shape and stored shape of each tensor."""
        shapes: list[tuple[str, Shape, Shape]] = []
        for index, layer in enumerate(self.layers):
            fan_in, width = layer.fan_in, layer.width
            weight = (width, fan_in) if layer.output_major else (fan_in, width)
            for name, shape in (("weight", weight), ("bias", (width,))):
                shapes.append((f"layers.{index}.{name}", shape, tuple(map(stored_width, shape))))
        return shapes


def _deviation(layer: DenseLayer) -> float:
    """Standard deviation of the first weights, so that signals neither grow nor die with depth.

    relu: He et al. 2015, eq. 10. tanh: Glorot & Bengio 2010, eq. 12. sigmoid: the same times 10,
    where the mean squared slope makes up for the weights (Schoenholz et al. 2017, "Deep
    Information Propagation", chi = 1); the usual 4 loses the rows in eight layers, so that they
    start on a plateau. Outputs (linear): a tenth, so that training starts from scores near 0 and
    not from confident nonsense.
    """
    if layer.activation == "relu":
        return math.sqrt(2 / layer.fan_in)
    gain = {"sigmoid": 10.0, "tanh": 1.0, "linear": 0.1}[layer.activation]
    return gain * math.sqrt(2 / (layer.fan_in + layer.width))
