"""The description of a layer, in the form used in messages, in model files and in a network."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, get_args

from hogbatch.errors import UsageError

Activation = Literal["linear", "relu", "selu", "sigmoid", "tanh"]
ACTIVATIONS: Final[tuple[str, ...]] = get_args(Activation)
HIDDEN_ACTIVATIONS: Final = ACTIVATIONS[1:]

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DenseLayer:
    """A fully connected layer: activation(x @ weight[fan_in, width] + bias[width]).

    With `output_major` the weight is stored transposed, [width, fan_in]: one row per output. Only
    the output layer of a network with hidden layers can be output-major. UsageError for a size
    below 1.
    """

    fan_in: int
    width: int
    activation: Activation
    output_major: bool = False

    def __post_init__(self) -> None:
        if min(self.fan_in, self.width) < 1:
            raise UsageError(f"expected at least 1 as sizes of a layer; got {self}")

    def tensors(self) -> dict[str, Shape]:
        """Return the shape of each parameter tensor by name, in the order of storage."""
        weight = (self.width, self.fan_in) if self.output_major else (self.fan_in, self.width)
        return {"weight": weight, "bias": (self.width,)}


def deviation(activation: Activation, fan_in: int, fan_out: int) -> float:
    """Return the standard deviation of the initial weights of a layer; biases start at zero.

    It keeps the scale of signals constant through deep networks.
    relu: He et al. 2015, eq. 10. selu: Klambauer et al. 2017, section 2. tanh: Glorot & Bengio
    2010, eq. 12. sigmoid: 10 times that value, where the weights compensate for the mean squared
    slope (Schoenholz et al. 2017, "Deep Information Propagation", chi = 1); the usual factor of 4
    makes rows indistinguishable after eight layers, and training starts on a plateau. linear
    (output layers): a tenth, so that training starts with scores near 0 instead of confident
    errors.
    """
    if activation == "relu":
        return math.sqrt(2 / fan_in)
    if activation == "selu":
        return math.sqrt(1 / fan_in)
    gain = {"sigmoid": 10.0, "tanh": 1.0, "linear": 0.1}[activation]
    return gain * math.sqrt(2 / (fan_in + fan_out))


# Names of fields in model files, where they differ: files of earlier versions must stay readable.
FILE_NAMES: Final = {"output_major": "by_neuron"}


def layer_to_file(layer: DenseLayer) -> dict[str, Any]:
    """Return the fields of `layer` with the names that model files use."""
    return {FILE_NAMES.get(name, name): value for name, value in asdict(layer).items()}
