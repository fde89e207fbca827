import pytest

from hogbatch.errors import UsageError
from hogbatch.kernels.cpu.simd import vector_registers, vector_width

pytestmark = pytest.mark.vector_width

X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"


@pytest.mark.parametrize(
    ("features", "width"),
    [
        ({"avx512f": True, "avx2": True}, 16),
        ({"avx512f": False, "avx2": True}, 8),
        ({"avx512f": False, "avx2": False, "sse2": True}, 4),
        ({"neon": True}, 4),
        ({}, 4),
    ],
)
def test_the_width_depends_on_the_features_of_the_host(features, width):
    assert vector_width("", features) == width


@pytest.mark.parametrize("forced", [4, 8, 16])
def test_a_forced_width_overrides_the_host(forced):
    assert vector_width(str(forced), {"avx512f": True}) == forced


@pytest.mark.parametrize("forced", ["5", "32", "wide", "-8"])
def test_an_invalid_forced_width_is_an_error(forced):
    with pytest.raises(UsageError, match=f"HOGBATCH_VECTOR must be 4, 8 or 16; got '{forced}'"):
        vector_width(forced, {})


@pytest.mark.parametrize(
    ("width", "triple", "registers"), [(16, X86, 32), (8, X86, 16), (4, X86, 16), (4, ARM, 32)]
)
def test_the_number_of_registers_depends_on_the_instruction_set(width, triple, registers):
    assert vector_registers(width, triple) == registers
