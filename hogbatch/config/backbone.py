"""The layers below the dense layers of a network, its backbone, in the notation of `--layers`.

    embed:5000x64    the vector of 64 values of each number of a sequence, which is below 5,000;
                     embed:64: of each word or character of a text
    conv:32x3x3      32 filters of 3 x 3 cells over a picture; zeros around it keep its size.
                     Options: conv:32x3x3:s2 (stride), :d2 (dilation), :valid (no zeros)
    conv1d:32x5      32 filters of 5 steps over a sequence, with the same options
    pool:2           the largest of 2 x 2 values of a channel; pool:1x2: of 1 x 2
    avgpool:2        their mean
    lstm:64          LSTM layer of 64 units over a sequence; lstm:64,last: only its last state
    gru:64           GRU layer of 64 units; gru:64,last: only its last state
    lstm:64:both     64 units in each direction; gru:64:both
    max, mean        the largest value of each channel, and its mean
    add:3            residual sum: the outputs of the layer below plus the inputs of the lowest of
                     three layers below. Activations are not counted
    norm             layer normalisation over the channels of each cell or step
    relu, tanh, ...  the activation of the convolution, normalisation or sum before it

In messages and model files, the shape of the inputs comes first: "28x28x1,conv:32x3x3,relu,pool:2".
A sequence of T steps with F values is a picture of shape 1 x T x F.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, cast

from hogbatch.config import backbone_layers as kinds
from hogbatch.config.layers import HIDDEN_ACTIVATIONS, Activation, Shape
from hogbatch.errors import UsageError

MAX_CELLS: Final = 1 << 24  # of the outputs of a layer
MAX_IDS: Final = 1 << 24  # larger ones are not exact in float32
FORM: Final = (
    'layers as in "conv:32x3x3,relu,pool:2,dense:128": conv:FILTERSxHEIGHTxWIDTH, '
    "conv1d:FILTERSxSTEPS, pool:SIZE, avgpool:SIZE, max, mean, lstm:UNITS, gru:UNITS, "
    "norm, add:LAYERS, and an activation after conv, norm or add; dense:WIDTH last; first "
    "embed:WIDTH for texts, embed:IDSxWIDTH for ids"
)


@dataclass(frozen=True, slots=True)
class Backbone:
    """The layers below the dense ones, in order, and the shape of the inputs of the first one."""

    inputs: Shape
    layers: tuple[kinds.BackboneLayer, ...]

    @classmethod
    def parse(cls, text: str) -> "Backbone":
        """Read what `str` returns; UsageError for anything else."""
        shape, _, layers = text.partition(",")
        return cls.of(layers, parse_shape(shape))

    @classmethod
    def of(cls, text: str, shape: Shape, ids: int = 0) -> "Backbone":
        """Read layers over inputs of `shape`, with `ids` if they are texts.

        UsageError if the layers do not fit.
        """
        layers: list[kinds.BackboneLayer] = []
        for word in text.split(","):
            below = layers[-1] if layers else None
            if word in HIDDEN_ACTIVATIONS:
                active = kinds.Convolution, kinds.Normalisation, kinds.Residual
                if not isinstance(below, active) or below.activation != "linear":
                    raise UsageError(f"{word!r} of {text!r} does not follow conv, norm or add")
                layers[-1] = replace(below, activation=cast(Activation, word))
                continue
            if word == "last":
                if not isinstance(below, kinds.Recurrent) or below.last:
                    raise UsageError(f"'last' of {text!r} does not follow an LSTM or GRU layer")
                layers[-1] = replace(below, last=True)
                continue
            inputs = layers[-1].outputs if layers else shape
            layer = _layer(word, inputs, ids)
            if isinstance(layer, kinds.Recurrent):  # vectors and states of padding are 0
                padded = isinstance(below, kinds.Recurrent) and below.padded
                layer = replace(layer, padded=padded or isinstance(below, kinds.Embedding))
            if isinstance(layer, kinds.Embedding) and (
                layers or inputs[2] > 1 or layer.ids > MAX_IDS
            ):
                raise UsageError(
                    f"{word!r} of {text!r} must be the first layer, over rows of one number per "
                    f"step, with at most {MAX_IDS:,} ids"
                )
            if isinstance(layer, kinds.Recurrent) and inputs[0] > 1:
                raise UsageError(
                    f"{word!r} of {text!r} needs a sequence, 1xSTEPSxVALUES; its inputs have the "
                    f"shape {show_shape(inputs)}"
                )
            if isinstance(layer, kinds.Normalisation) and inputs[2] < 2:
                raise UsageError(
                    f"{word!r} of {text!r} needs two or more channels, whose mean becomes 0; its "
                    f"inputs have the shape {show_shape(inputs)}"
                )
            if layer.skipped:
                shapes = [show_shape(each.inputs) for each in layers[-layer.skipped :]]
                if len(shapes) < layer.skipped or shapes[0] != show_shape(inputs):
                    raise UsageError(
                        f"{word!r} of {text!r} adds outputs of shape {show_shape(inputs)} to the "
                        f"inputs of the first of {layer.skipped} layers below it: expected equal "
                        f"shapes; got layers with inputs of {', '.join(shapes) or 'none'}"
                    )
            if min(layer.outputs) < 1 or math.prod(layer.outputs) > MAX_CELLS:
                raise UsageError(
                    f"{word!r} of {text!r} has outputs of shape {show_shape(layer.outputs)}, from "
                    f"inputs of {show_shape(inputs)}: expected from 1 to {MAX_CELLS:,} values"
                )
            layers.append(layer)
        return cls(shape, tuple(layers))

    @property
    def features(self) -> int:
        """F, the values of an input."""
        return math.prod(self.inputs)

    @property
    def outputs(self) -> int:
        """The values of an output, which are the inputs of the dense layers."""
        return math.prod(self.layers[-1].outputs)

    @property
    def products(self) -> int:
        """The multiplications for a row."""
        return sum(layer.products for layer in self.layers)

    def tensors(self) -> Iterator[tuple[str, Shape]]:
        """Yield name and shape of each tensor, in the order of storage."""
        for index, layer in enumerate(self.layers):
            for name, shape in layer.tensors().items():
                yield f"backbone.{index}.{name}", shape

    def __str__(self) -> str:
        words = [show_shape(self.inputs)]
        for layer in self.layers:
            words += [str(layer), layer.activation]
        return ",".join(word for word in words if word != "linear")


def is_divided(text: str) -> bool:
    """Whether `divided` can read `text`."""
    try:
        divided(text)
    except ValueError:
        return False
    return True


def divided(text: str) -> tuple[str, tuple[int, ...]]:
    """Divide the value of `--layers` into its backbone and the widths of its dense layers.

    ValueError for text without a backbone, or for words after the first dense layer that are not.
    """
    words = text.replace(" ", "").split(",")
    first = next((n for n, word in enumerate(words) if word.startswith("dense:")), len(words))
    if first == 0:
        raise ValueError
    widths = tuple(int(word.removeprefix("dense:")) for word in words[first:])
    if min(widths, default=1) < 1:
        raise ValueError
    return ",".join(words[:first]), widths


def shape_of(layers: str, stated: str, found: Shape) -> Shape:
    """Return the shape of the inputs of `layers`, (height, width, channels).

    It is `stated` as text, or `found` in the data: (height, width), (steps, values) for layers that
    begin with conv1d, lstm or gru, or all three. UsageError if it is unknown.
    """
    if stated:
        return parse_shape(stated)
    if len(found) == 3:
        return found
    if len(found) == 1 and layers.startswith("embed"):
        return (1, *found, 1)
    if len(found) == 2:
        return (1, *found) if layers.startswith(("conv1d", "lstm", "gru")) else (*found, 1)
    raise UsageError(
        "--layers needs the shape of a row: an array X [N, HEIGHT, WIDTH] or [N, HEIGHT, WIDTH, "
        "CHANNELS] of a .npz file, a folder of pictures, or --input-shape HEIGHTxWIDTHxCHANNELS"
    )


def parse_shape(text: str) -> Shape:
    """Read "28x28x1", or "28x28" with one channel; UsageError for other text."""
    sizes = [int(size) if size.isdecimal() else 0 for size in text.split("x")]
    if len(sizes) == 2:
        sizes.append(1)
    if len(sizes) != 3 or min(sizes) < 1:
        raise UsageError(f"expected a shape as in 28x28x1, HEIGHTxWIDTHxCHANNELS; got {text!r}")
    return tuple(sizes)


def show_shape(shape: Shape) -> str:
    """Return "28x28x1"."""
    return "x".join(map(str, shape))


def _layer(word: str, inputs: Shape, ids: int) -> kinds.BackboneLayer:
    """Read the word of one layer over `inputs`; UsageError if it is none."""
    kind, *options = word.split(":")
    try:
        sizes = tuple(map(int, options.pop(0).split("x"))) if options else ()
        if min(sizes, default=1) < 1:
            raise ValueError
        match kind, sizes:
            case "embed", (width,) if ids and not options:
                return kinds.Embedding(inputs, ids, width)
            case "embed", (count, width) if not options:
                return kinds.Embedding(inputs, count, width)
            case "conv", (filters, height, width):
                return _with_options(kinds.Convolution(inputs, filters, height, width), options)
            case (("lstm" | "gru"), (units,)) if options in ([], ["both"]):
                return kinds.Recurrent(inputs, units, kind == "gru", both=bool(options))
            case "add", (skipped,) if not options:
                return kinds.Residual(inputs, skipped=skipped)
            case "norm", () if not options:
                return kinds.Normalisation(inputs)
            case "conv1d", (filters, steps):
                return _with_options(kinds.Convolution(inputs, filters, 1, steps), options)
            case (("pool" | "avgpool"), (_,) | (_, _)) if not options:
                return kinds.Pooling(inputs, sizes[0], sizes[-1], kind == "avgpool")
            case (("max" | "mean"), ()) if not options:
                return kinds.Pooling(inputs, inputs[0], inputs[1], kind == "mean")
    except ValueError:
        pass
    raise UsageError(f"expected {FORM}; got {word!r}")


def _with_options(layer: kinds.Convolution, options: list[str]) -> kinds.Convolution:
    for option in options:
        if option == "valid":
            layer = replace(layer, same=False)
        elif option[:1] == "s" and int(option[1:]) > 0:
            layer = replace(layer, stride=int(option[1:]))
        elif option[:1] == "d" and int(option[1:]) > 0:
            layer = replace(layer, dilation=int(option[1:]))
        else:
            raise ValueError
    return layer
