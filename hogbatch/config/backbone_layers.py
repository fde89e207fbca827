"""The kinds of layers below the dense layers; `hogbatch.config.backbone` reads their notation."""

import math
from dataclasses import dataclass, field
from typing import ClassVar, Final

from hogbatch.config.layers import Activation, Shape, deviation

EMBEDDED: Final = 0.2  # deviation of the initial vectors; docs/pictures.md compares some


@dataclass(frozen=True, slots=True)
class BackboneLayer:
    """A layer over inputs of shape (height, width, channels), by default without parameters."""

    # Whether an update changes only rows of its tensor; such a layer is the first one.
    by_rows: ClassVar[bool] = False
    inputs: Shape
    activation: Activation = field(default="linear", kw_only=True)  # that the layer ends with
    skipped: int = field(default=0, kw_only=True)  # layers below; the lowest one's inputs are added

    @property
    def outputs(self) -> Shape:
        """(height, width, channels) of the outputs, by default those of the inputs."""
        return self.inputs

    @property
    def values(self) -> int:
        """The values in memory for a row."""
        return math.prod(self.outputs)

    @property
    def patches(self) -> int:
        """The values that NumPy and GPUs copy for a row, besides those in memory."""
        return 0

    @property
    def products(self) -> int:
        """The multiplications for a row."""
        return 0

    @property
    def depth(self) -> int:
        """The multiplications of its passes that must follow one another, except for weights."""
        return 0

    @property
    def launches(self) -> int:
        """The operations of a GPU for a batch, about."""
        return 2 + 2 * len(self.tensors())

    def tensors(self) -> dict[str, Shape]:
        """Return the shape of each parameter tensor by name, in the order of storage."""
        return {}

    def deviations(self) -> dict[str, float]:
        """Return the standard deviations of the initial weights by name; others start at zero."""
        return {}


@dataclass(frozen=True, slots=True)
class Embedding(BackboneLayer):
    """The vector of each id: row n of the tensor for n from 1 to ids - 1, and 0 for any other n.

    Id 0 is padding.
    """

    by_rows = True
    ids: int
    width: int

    @property
    def outputs(self) -> Shape:
        return *self.inputs[:2], self.width

    def tensors(self) -> dict[str, Shape]:
        return {"vectors": (self.ids, self.width)}

    def deviations(self) -> dict[str, float]:
        return {"vectors": EMBEDDED}

    def __str__(self) -> str:
        return f"embed:{self.ids}x{self.width}"


@dataclass(frozen=True, slots=True)
class Convolution(BackboneLayer):
    """out[y, x, f] = activation(sum of in[s y + d i - top, s x + d j - left, c] w[i, j, c, f] + b).

    The sum is over i, j and c, the bias that of filter f; cells outside the input are 0.
    """

    filters: int
    height: int  # cells of a filter
    width: int
    stride: int = 1
    dilation: int = 1
    same: bool = True  # zeros around the input, so that only the stride makes the output smaller

    @property
    def outputs(self) -> Shape:
        sizes = zip(self.inputs, (self.height, self.width), strict=False)
        reduced = [n if self.same else n - self.dilation * (k - 1) for n, k in sizes]
        return (*(-(-n // self.stride) for n in reduced), self.filters)

    @property
    def border(self) -> tuple[int, int]:
        """The zeros above and to the left of the input."""
        top, left = ((k - 1) * self.dilation // 2 for k in (self.height, self.width))
        return (top, left) if self.same else (0, 0)

    def tensors(self) -> dict[str, Shape]:
        weight = self.height, self.width, self.inputs[2], self.filters
        return {"weight": weight, "bias": (self.filters,)}

    def deviations(self) -> dict[str, float]:
        cells = self.height * self.width
        activation = "tanh" if self.activation == "linear" else self.activation  # not of outputs
        return {"weight": deviation(activation, cells * self.inputs[2], cells * self.filters)}

    @property
    def patches(self) -> int:
        return self.products // self.filters

    @property
    def products(self) -> int:
        return math.prod(self.outputs) * self.height * self.width * self.inputs[2]

    @property
    def depth(self) -> int:
        return self.products // math.prod(self.outputs) + self.filters

    def __str__(self) -> str:
        size = f"{self.filters}x{self.height}x{self.width}"
        options = f":s{self.stride}" * (self.stride > 1) + f":d{self.dilation}" * (
            self.dilation > 1
        )
        return f"conv:{size}{options}{'' if self.same else ':valid'}"


@dataclass(frozen=True, slots=True)
class Pooling(BackboneLayer):
    """The largest value, or the mean, of each height x width cells of a channel.

    Cells of a rest that does not fill a window are not used.
    """

    height: int
    width: int
    mean: bool = False

    @property
    def outputs(self) -> Shape:
        height, width, channels = self.inputs
        return height // self.height, width // self.width, channels

    def __str__(self) -> str:
        return f"{'avgpool' if self.mean else 'pool'}:{self.height}x{self.width}"


@dataclass(frozen=True, slots=True)
class Recurrent(BackboneLayer):
    """A layer of recurrent units over the steps of a sequence.

    The outputs are the states of all steps, or with `last` those of the last one. LSTM units
    (Hochreiter & Schmidhuber 1997) have gates in the order input, forget, candidate, output. GRU
    (Cho et al. 2014) has the form of cuDNN, which resets the product with the states h before:

        r = sigmoid(x W_r + h U_r + b_r),   z = sigmoid(x W_z + h U_z + b_z)
        n = tanh(x W_n + b_n + r (h U_n + c_n)),   h = (1 - z) n + z h

    The columns of its `weight` W are in the order n, r, z, those of `recurrent` U r, z, n, and the
    biases b_n, b_r, b_z, c_n.

    With `both` (Schuster & Paliwal 1997), a second layer goes from the last step to the first. The
    outputs of both are beside each other, with `last` those of the step where each one ends.

    With `padded`, the steps of a direction before the first whose inputs are not all 0 leave its
    states at 0, and those in front of a sequence also end its second direction.
    """

    units: int
    gru: bool = False
    last: bool = False
    both: bool = False
    padded: bool = False

    @property
    def directions(self) -> tuple[str, ...]:
        """The ends of the names of the tensors of each direction."""
        return ("", "_back") if self.both else ("",)

    @property
    def gates(self) -> int:
        """The columns of a product with the inputs, or with the states."""
        return (3 if self.gru else 4) * self.units

    @property
    def outputs(self) -> Shape:
        return 1, (1 if self.last else self.inputs[1]), self.units * len(self.directions)

    @property
    def values(self) -> int:
        copied = 2 * (math.prod(self.inputs) + self.outputs[1] * self.units) * self.both
        return 7 * self.inputs[1] * self.units * len(self.directions) + copied

    @property
    def products(self) -> int:
        one = self.inputs[1] * (self.inputs[2] + self.units) * self.gates
        return one * len(self.directions)

    @property
    def depth(self) -> int:
        steps = self.inputs[1] * (self.units + self.gates)
        return (steps + self.inputs[2] + self.gates) * len(self.directions)

    @property
    def launches(self) -> int:
        return 2 + 2 * len(self.tensors()) + 4 * self.inputs[1] * len(self.directions)

    def tensors(self) -> dict[str, Shape]:
        weight, recurrent = (self.inputs[2], self.gates), (self.units, self.gates)
        one = {"weight": weight, "recurrent": recurrent, "bias": (4 * self.units,)}
        return {name + end: shape for end in self.directions for name, shape in one.items()}

    def deviations(self) -> dict[str, float]:
        inputs = math.sqrt(2 / (self.inputs[2] + self.units))
        one = {"weight": inputs, "recurrent": math.sqrt(1 / self.units)}
        return {name + end: value for end in self.directions for name, value in one.items()}

    def __str__(self) -> str:
        options = ":both" * self.both + ",last" * self.last
        return f"{'gru' if self.gru else 'lstm'}:{self.units}{options}"


@dataclass(frozen=True, slots=True)
class Residual(BackboneLayer):
    """activation(in + the inputs of the lowest of the `skipped` layers below) (He et al. 2016)."""

    def __str__(self) -> str:
        return f"add:{self.skipped}"


@dataclass(frozen=True, slots=True)
class Normalisation(BackboneLayer):
    """activation((1 + gain) (in - mean) / sqrt(variance + 1e-5) + bias) (Ba et al. 2016).

    Mean and variance are those of the channels of a cell; a gain and a bias belong to each channel.
    """

    @property
    def values(self) -> int:
        """The outputs, the values before gain and bias, and a deviation for each cell."""
        return (2 * self.inputs[2] + 1) * math.prod(self.inputs[:2])

    def tensors(self) -> dict[str, Shape]:
        return {"gain": self.inputs[2:], "bias": self.inputs[2:]}

    def __str__(self) -> str:
        return "norm"
