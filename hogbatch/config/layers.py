"""Descriptions of layers, in the form used in messages, in model files and in a network.

A network is a list of these descriptions. Messages (`hogbatch.wire.messages.Welcome`) and model
files contain them, and `hogbatch.model.network` derives from them the positions of parameters and
the arguments of kernels. Each kind of layer is one dataclass, listed in `LAYER_KINDS`. Only
`hogbatch.model.network.layer_view` also distinguishes kinds.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from hogbatch.errors import UsageError

Activation = Literal["linear", "relu", "sigmoid", "tanh"]
ACTIVATIONS: Final[tuple[str, ...]] = get_args(Activation)

Shape = tuple[int, ...]


class Layer(ABC):
    """One layer of any kind: `fan_in` values per row in, `width` values per row out.

    The subclasses are frozen dataclasses. Their fields must be numbers, strings and booleans, and
    are checked when a layer is constructed; UsageError names the invalid field. Every kind has the
    attributes below, as fields or as properties that follow from other fields.
    """

    __slots__ = ()

    if TYPE_CHECKING:  # at run time, dataclasses would treat these as default values

        @property
        def kind(self) -> str:
            """The key in LAYER_KINDS, which must be a field."""

        @property
        def fan_in(self) -> int:
            """Input values per row."""

        @property
        def width(self) -> int:
            """Output values per row."""

        @property
        def activation(self) -> Activation:
            """The activation of the outputs."""

        @property
        def output_major(self) -> bool:
            """Whether the weights are stored [out, in]."""

    @abstractmethod
    def tensors(self) -> dict[str, Shape]:
        """Return the shape of each parameter tensor by name, in the order of storage."""

    @abstractmethod
    def deviations(self) -> dict[str, float]:
        """Return the standard deviation of the initial values of each tensor by name.

        Tensors that are not listed start at zero.
        """


@dataclass(frozen=True, slots=True)
class DenseLayer(Layer):
    """A fully connected layer: activation(x @ weight[fan_in, width] + bias[width]).

    With `output_major` the weight is stored transposed, [width, fan_in]: one row per output. Only
    the output layer of a network with hidden layers can be output-major.
    """

    fan_in: int
    width: int
    activation: Activation
    output_major: bool = False
    kind: Literal["dense"] = "dense"

    def __post_init__(self) -> None:
        _expect_kind(self)
        _expect_count(self, "fan_in")
        _expect_count(self, "width")
        _expect_choice(self, "activation", ACTIVATIONS)
        _expect_flag(self, "output_major")

    def tensors(self) -> dict[str, Shape]:
        weight = (self.width, self.fan_in) if self.output_major else (self.fan_in, self.width)
        return {"weight": weight, "bias": (self.width,)}

    def deviations(self) -> dict[str, float]:
        """Keep the scale of signals constant through deep networks.

        relu: He et al. 2015, eq. 10. tanh: Glorot & Bengio 2010, eq. 12. sigmoid: 10 times that
        value, where the weights compensate for the mean squared slope (Schoenholz et al. 2017,
        "Deep Information Propagation", chi = 1); the usual factor of 4 makes rows
        indistinguishable after eight layers, and training starts on a plateau. linear (output
        layers): a tenth, so that training starts with scores near 0 instead of confident errors.
        """
        if self.activation == "relu":
            return {"weight": math.sqrt(2 / self.fan_in)}
        gain = {"sigmoid": 10.0, "tanh": 1.0, "linear": 0.1}[self.activation]
        return {"weight": gain * math.sqrt(2 / (self.fan_in + self.width))}


LAYER_KINDS: Final[Mapping[str, type[Layer]]] = {"dense": DenseLayer}


# Names of fields in model files, where they differ: files of earlier versions must stay readable.
FILE_NAMES: Final = {"output_major": "by_neuron"}


def layer_from(description: object) -> Layer:
    """Return the layer with the fields of `description`, a mapping as a message contains it.

    UsageError if the kind is unknown, or if a field is missing, unknown or invalid.
    """
    if not isinstance(description, Mapping):
        raise UsageError(f"expected the fields of a layer; got {type(description).__name__}")
    kind = description.get("kind")
    if not isinstance(kind, str) or kind not in LAYER_KINDS:
        raise UsageError(f"expected a layer of kind {' or '.join(LAYER_KINDS)}; got {kind!r}")
    # mypy does not know that the values of LAYER_KINDS are dataclasses.
    known: Any = fields(LAYER_KINDS[kind])  # type: ignore[arg-type]
    required = {field.name for field in known if field.default is MISSING}
    if not required <= description.keys() <= {field.name for field in known}:
        raise UsageError(
            f"expected a {kind} layer with the fields {', '.join(field.name for field in known)}; "
            f"got {', '.join(map(str, description))}"
        )
    return LAYER_KINDS[kind](**description)


def layer_to_file(layer: Layer) -> dict[str, Any]:
    """Return the fields of `layer` with the names that model files use, for `layer_from_file`.

    The kind of dense layers is left out, so that version 0.1.0 can read their files.
    """
    described: dict[str, Any] = asdict(layer)  # type: ignore[call-overload]
    if layer.kind == "dense":
        del described["kind"]
    return {FILE_NAMES.get(name, name): value for name, value in described.items()}


def layer_from_file(described: Mapping[str, Any]) -> Layer:
    """Return the layer that `layer_to_file` described; UsageError as in `layer_from`."""
    names = {stored: name for name, stored in FILE_NAMES.items()}
    renamed = {names.get(name, name): value for name, value in described.items()}
    return layer_from({"kind": "dense"} | renamed)


def _expect_kind(layer: Layer) -> None:
    if LAYER_KINDS.get(layer.kind) is not type(layer):
        raise UsageError(f"{layer.kind!r} is not the kind of a {type(layer).__name__}")


def _expect_count(layer: Layer, name: str) -> None:
    value = getattr(layer, name)
    if type(value) is not int or value < 1:
        raise UsageError(
            f"{name} of a {layer.kind} layer must be a whole number of at least 1; got {value!r}"
        )


def _expect_choice(layer: Layer, name: str, choices: tuple[str, ...]) -> None:
    value = getattr(layer, name)
    if value not in choices:
        raise UsageError(
            f"{name} of a {layer.kind} layer must be one of {', '.join(choices)}; got {value!r}"
        )


def _expect_flag(layer: Layer, name: str) -> None:
    value = getattr(layer, name)
    if type(value) is not bool:
        raise UsageError(f"{name} of a {layer.kind} layer must be true or false; got {value!r}")
