"""A network: a list of layers, and where their parameters are stored in one flat array."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np

from hogbatch.config.backbone import Backbone, show_shape
from hogbatch.config.layers import (
    FILE_NAMES,
    Activation,
    DenseLayer,
    Shape,
    deviation,
    layer_to_file,
)
from hogbatch.config.losses import LOSSES
from hogbatch.data.schema import Count, convert
from hogbatch.errors import UsageError
from hogbatch.kernels.backbone import PlacedLayer
from hogbatch.kernels.contract import ACTIVATIONS, Floats
from hogbatch.kernels.layers import LayerView
from hogbatch.store.layout import stored_width, tensor_offsets

# Initial scales of networks with an output-major layer; measured (docs/slide.md).
INITIAL_SIGNAL = 0.1
INITIAL_OUTPUT = 0.2
DRAWN_VALUES = 1 << 18  # random values drawn at a time, to avoid a second copy of a weight


@dataclass(frozen=True, slots=True)
class Tensor:
    """One weight or bias: `shape` without padding, `stored` as it is in memory."""

    name: str  # "layers.0.weight", "layers.0.bias", ...
    shape: Shape
    stored: Shape
    offset: int  # of the first float in the flat parameters

    def view(self, params: Floats) -> Floats:
        """Return a view of the tensor in params[P] without its padding."""
        cells = params[self.offset : self.offset + math.prod(self.stored)].reshape(self.stored)
        return cells[tuple(slice(size) for size in self.shape)]


@dataclass(frozen=True, slots=True)
class Description:
    """A network in a model file."""

    features: Count
    layers: tuple[dict[str, Any], ...]  # as `layer_to_file` returns them
    loss: str
    backbone: str | None = None  # written if there is one: earlier versions refuse such files


@dataclass(frozen=True, slots=True)
class Network:
    """A list of layers over `features` inputs; a single layer is a linear model.

    A `backbone` has layers of other kinds, whose outputs are the inputs of the dense `layers`.

    Parameters are params[P], float32: the tensors of each layer in turn, each 64-byte aligned, with
    widths padded for SIMD. Padding is zero, and training keeps it zero.
    """

    features: int
    layers: tuple[DenseLayer, ...]
    loss: str
    backbone: Backbone | None = None

    @classmethod
    def build(
        cls,
        features: int,
        hidden: tuple[int, ...],
        outputs: int,
        activation: str,
        loss: str,
        output_major: bool = False,
        backbone: Backbone | None = None,
    ) -> "Network":
        """Build dense hidden layers of these widths with `activation`, and a linear output layer.

        They are above the `backbone`, if there is one. With `output_major`, the weights of the
        output layer are stored [out, in]. UsageError for an unknown name, a width below 1, inputs
        that are not those of the backbone, or an output-major layer without a hidden layer below.
        """
        if backbone is not None and backbone.features != features:
            raise UsageError(
                f"expected rows of shape {show_shape(backbone.inputs)}, {backbone.features} values "
                f"(--input-shape); got rows of {features}"
            )
        widths = (features if backbone is None else backbone.outputs, *hidden, outputs)
        if min(widths) < 1:
            raise UsageError(f"a layer must have at least 1 unit; got widths {widths}")
        for name, known in ((activation, ACTIVATIONS), (loss, LOSSES)):
            if name not in known:
                raise UsageError(f"expected one of {', '.join(known)}; got {name!r}")
        if output_major and not hidden:
            raise UsageError("an output-major layer needs a hidden layer below it; got none")
        known_name = cast(Activation, activation)
        layers = [DenseLayer(fan_in, width, known_name) for fan_in, width in pairwise(widths[:-1])]
        layers.append(DenseLayer(widths[-2], outputs, "linear", output_major))
        return cls(features, tuple(layers), loss, backbone)

    @classmethod
    def described(
        cls, features: int, layers: tuple[DenseLayer, ...], loss: str, backbone: str
    ) -> "Network":
        """Create a network from the fields of a Welcome; `backbone` is "" if there is none."""
        return cls(features, layers, loss, Backbone.parse(backbone) if backbone else None)

    @classmethod
    def from_description(cls, description: Any) -> "Network":
        """Create a network from its `description`; ValueError unless `build` can make it."""
        known: Description = convert(description, Description, "network")
        names = {stored: name for name, stored in FILE_NAMES.items()}
        own = [{names.get(name, name): each[name] for name in each} for each in known.layers]
        layers: tuple[DenseLayer, ...] = convert(own, tuple[DenseLayer, ...], "network.layers")
        if not layers:
            raise UsageError("expected at least one layer; got none")
        *hidden, outputs = (layer.width for layer in layers)
        network = cls.build(
            known.features,
            tuple(hidden),
            outputs,
            layers[0].activation,
            known.loss,
            layers[-1].output_major,
            None if known.backbone is None else Backbone.parse(known.backbone),
        )
        if network.layers != layers:
            raise UsageError(
                f"expected {known.features} features, layers that take the outputs of the layer "
                f"below, and a linear output layer; got {list(layers)}"
            )
        return network

    def description(self) -> dict[str, Any]:
        """Return the network as nested dictionaries and lists, for a model file."""
        layers = [layer_to_file(layer) for layer in self.layers]
        described = {"features": self.features, "layers": layers, "loss": self.loss}
        return described | ({} if self.backbone is None else {"backbone": str(self.backbone)})

    @property
    def outputs(self) -> int:
        """C, the width of the last layer without padding."""
        return self.layers[-1].width

    @property
    def hidden(self) -> tuple[int, ...]:
        """The widths of the hidden layers."""
        return tuple(layer.width for layer in self.layers[:-1])

    @property
    def output_major(self) -> bool:
        """Whether the weights of the last layer are stored [out, in]."""
        return self.layers[-1].output_major

    @property
    def linear(self) -> bool:
        """Whether scores are linear in the features, so that the loss is convex."""
        return len(self.layers) == 1 and self.backbone is None

    @property
    def widths(self) -> str:
        """The layers, for messages: "123-512-1", "28x28x1,conv:32x3x3,relu,pool:2x2,6272-10"."""
        widths = "-".join([*(str(layer.fan_in) for layer in self.layers), str(self.outputs)])
        return widths if self.backbone is None else f"{self.backbone},{widths}"

    @property
    def parameters(self) -> int:
        """P, the number of floats of the flat parameters, padding included."""
        return tensor_offsets(stored for _, stored in self._shapes().values())[1]

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the tensors of each layer in turn."""
        shapes = self._shapes()
        offsets, _ = tensor_offsets(stored for _, stored in shapes.values())
        return tuple(
            Tensor(name, shape, stored, offset)
            for (name, (shape, stored)), offset in zip(shapes.items(), offsets, strict=True)
        )

    def place(self, index: int) -> str:
        """Name the parameter params[index]: "layers.1.weight[3, 5]", "padding of layers.1.weight".

        IndexError if `index` is outside params[P].
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

    def layer_views(self) -> tuple[LayerView, ...]:
        """Return the dense layers in the form that kernels take."""
        tensors = self.tensors()[-2 * len(self.layers) :]
        layers = zip(self.layers, tensors[::2], tensors[1::2], strict=True)
        return tuple(_view(*layer) for layer in layers)

    def placed_backbone(self) -> tuple[PlacedLayer, ...]:
        """Return the layers of the backbone with the places of their tensors; () if it is None."""
        if self.backbone is None:
            return ()
        offsets = iter([tensor.offset for tensor in self.tensors()])
        return tuple(
            PlacedLayer(layer, tuple(next(offsets) for _ in layer.tensors()))
            for layer in self.backbone.layers
        )

    def initialise(self, params: Floats, seed: int, mean_square: float | None = None) -> None:
        """Fill params[P] with initial values; the same seed gives the same numbers.

        Biases are zero. So are the weights of a linear model, because its loss is convex.
        `mean_square` is the mean over rows of the squared norm of the inputs, if known; see
        `_deviations`.
        """
        params[:] = 0
        if self.linear:
            return
        random = np.random.default_rng(seed)
        deviations = self._deviations(mean_square)
        for tensor in self.tensors():
            if tensor.name not in deviations:
                continue
            rows, width = tensor.shape[0], math.prod(tensor.shape[1:])
            step = max(1, DRAWN_VALUES // width)  # drawing step by step gives the same values
            for start in range(0, rows, step):
                cells = tensor.view(params)[start : start + step]
                cells[:] = random.standard_normal(cells.shape, np.float32)
                cells *= np.float32(deviations[tensor.name])

    def _deviations(self, mean_square: float | None) -> dict[str, float]:
        """Standard deviations of the initial weights, by tensor name.

        Those of the layers, except in networks with an output-major layer. Hashing finds
        its outputs by the angle between their weights and the input, and noise would dominate a
        weak signal. Therefore the first pre-activations of a row are at least INITIAL_SIGNAL (rows
        of many features and norm 1 would have less), and the weights of an output do not shrink
        with the number of outputs.
        """
        deviations = {
            f"layers.{index}.weight": deviation(layer.activation, layer.fan_in, layer.width)
            for index, layer in enumerate(self.layers)
        }
        for index, kind in enumerate(self.backbone.layers if self.backbone else ()):
            found = kind.deviations().items()
            deviations |= {f"backbone.{index}.{name}": value for name, value in found}
        if self.output_major:
            first, last = "layers.0.weight", f"layers.{len(self.layers) - 1}.weight"
            if mean_square:
                deviations[first] = max(deviations[first], INITIAL_SIGNAL / math.sqrt(mean_square))
            deviations[last] = INITIAL_OUTPUT / math.sqrt(self.layers[-1].fan_in)
        return deviations

    def from_stored(self, params: Floats) -> dict[str, Floats]:
        """Return views of the tensors in params[P] without padding, by name."""
        return {tensor.name: tensor.view(params) for tensor in self.tensors()}

    def _shapes(self) -> dict[str, tuple[Shape, Shape]]:
        """Shape of each tensor without padding and as stored, by name, in the order of storage.

        Only the tensors of dense layers have padding.
        """
        below = () if self.backbone is None else self.backbone.tensors()
        return {name: (shape, shape) for name, shape in below} | {
            f"layers.{index}.{name}": (shape, tuple(map(stored_width, shape)))
            for index, layer in enumerate(self.layers)
            for name, shape in layer.tensors().items()
        }


def _view(layer: DenseLayer, weight: Tensor, bias: Tensor) -> LayerView:
    """Return the arguments of kernels for `layer`."""
    fan_in, fan_out = weight.stored[::-1] if layer.output_major else weight.stored
    return LayerView(
        weights=weight.offset,
        bias=bias.offset,
        fan_in=fan_in,
        fan_out=fan_out,
        width=layer.width,
        activation=ACTIVATIONS[layer.activation],
        output_major=int(layer.output_major),
    )
