"""The CUDA C sources of the GPU backend: one compilation unit per file of `cuda/`.

`common.cuh` is included in each. Names are extern "C", so that NVRTC compiles the sources with or
without CuPy and a GPU.
"""

from importlib import resources
from typing import Final

from hogbatch.kernels import contract

_NAMES = """
    LINEAR RELU SIGMOID TANH SELU SELU_SLOPE SELU_LIMIT  FURTHEST LARGEST
    LOSS SKIPPED SKIPPED_ROW EXTRA_WEIGHT METRIC_SUMS  STEEPEST LARGEST_LOG
"""
_SETS = "LABEL_LISTS NORMALISED BINARY ADAPTIVE DECOUPLED"  # to ask in CUDA C: ADAPTIVE(kind)


def _upper(name: str) -> str:
    """The constant for a loss or an optimizer: MULTILABEL_SOFTMAX for "multilabel-softmax"."""
    return name.upper().replace("-", "_")


def _is_one_of(kinds: tuple[int, ...]) -> str:
    """A C expression: whether `kind` is one of `kinds`."""
    return " || ".join(f"(kind) == {number}" for number in kinds)


_DEFINES = "".join(
    [
        *(f"#define {name} {getattr(contract, name)}\n" for name in _NAMES.split()),
        *(
            f"#define {_upper(name)} {kind}\n"
            for name, kind in contract.LOSSES.items()
            if kind >= 0
        ),
        *(f"#define {_upper(name)} {kind}\n" for name, kind in contract.OPTIMIZERS.items()),
        *(
            f"#define {name}(kind) ({_is_one_of(getattr(contract, name))})\n"
            for name in _SETS.split()
        ),
    ]
)


def _text(name: str) -> str:
    return (resources.files(__package__) / "cuda" / name).read_text(encoding="utf-8")


NAMES: Final = "backbone", "dense", "sparse", "losses", "replica", "staging"

SOURCES: Final = {name: _DEFINES + _text("common.cuh") + _text(f"{name}.cu") for name in NAMES}

# The same with operands of matrix products in bfloat16, which CuPy's arrays hold as uint16.
BFLOAT16_SOURCES: Final = {name: "#define BFLOAT16\n" + text for name, text in SOURCES.items()}
