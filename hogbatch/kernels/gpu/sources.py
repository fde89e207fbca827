"""The CUDA C sources of the GPU backend: one compilation unit per file of `cuda/`.

`common.cuh` is included in each. Names are extern "C", so that NVRTC compiles the sources with or
without CuPy and a GPU.
"""

from importlib import resources
from typing import Final

from hogbatch.kernels import contract

_NAMES = """
    LINEAR RELU SIGMOID TANH SELU SELU_SLOPE SELU_LIMIT  FURTHEST LARGEST
    LEAST_VARIANCE
    LOSS SKIPPED SKIPPED_ROW EXTRA_WEIGHT METRIC_SUMS  STEEPEST LARGEST_LOG
"""
_SETS = "LABEL_LISTS NORMALISED BINARY ADAPTIVE DECOUPLED"  # to ask in CUDA C: ADAPTIVE(kind)


_NUMBERS = {name: getattr(contract, name) for name in _NAMES.split()} | {
    name.upper().replace("-", "_"): kind  # MULTILABEL_SOFTMAX for "multilabel-softmax"
    for name, kind in (contract.LOSSES | contract.OPTIMIZERS).items()
    if kind >= 0
}
_TESTS = {
    f"{name}(kind)": " || ".join(f"(kind) == {number}" for number in getattr(contract, name))
    for name in _SETS.split()
}
_DEFINES = "".join(f"#define {name} ({value})\n" for name, value in (_NUMBERS | _TESTS).items())


def _text(name: str) -> str:
    return (resources.files(__package__) / "cuda" / name).read_text(encoding="utf-8")


NAMES: Final = "backbone", "dense", "sparse", "losses", "replica", "staging"

SOURCES: Final = {name: _DEFINES + _text("common.cuh") + _text(f"{name}.cu") for name in NAMES}

# The same with operands of matrix products in bfloat16, which CuPy's arrays hold as uint16.
BFLOAT16_SOURCES: Final = {name: "#define BFLOAT16\n" + text for name, text in SOURCES.items()}
