"""Compiles the CUDA C with NVRTC from its wheel: no GPU, no driver and no CuPy needed."""

import ctypes
import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from hogbatch.kernels.gpu import sources
from hogbatch.kernels.gpu.sources import BFLOAT16_SOURCES, SOURCES
from tests.support.pairs import pairs

WHEEL = "nvidia-cuda-nvrtc-cu12"
GPU = Path(sources.__file__).parent
PROJECT = GPU.parents[2]
KERNELS = {  # the extern "C" names of each source
    "backbone": (
        "gather_augmented",
        *("look_up", "as_sparse", "take_patches", "add_patches", "pool", "pool_backward"),
        *("first_steps", "reverse_steps", "set_in_padding"),
        *("lstm_step", "lstm_step_backward", "gru_step", "gru_step_backward"),
        *("normalise", "normalise_backward"),
    ),
    "dense": (
        *("gather_dense", "to_operands", "add_bias_and_activate", "drop"),
        *("activate_backward", "scale", "bound_rows", "narrow_forward", "narrow_backward"),
        *("sum_columns", "narrow_gradient", "forget_not_finite", "step"),
    ),
    "sparse": (
        *("gather_sparse", "csr_forward", "csr_bound_rows"),
        *("find_touched", "unmark", "add_up", "step_touched"),
    ),
    "losses": ("loss_gradient", "narrow_loss_gradient", "loss_and_metrics"),
    "replica": ("hand_over", "drain", "add", "take_rows", "rejoin_rows", "add_rows"),
    "staging": ("copy_rows", "copy_cells", "find_spans", "add_lengths"),
}


@pytest.fixture(scope="session")
def nvrtc():
    try:
        files = metadata.files(WHEEL) or ()
    except metadata.PackageNotFoundError:
        pytest.skip(f"{WHEEL} is not installed")
    libraries = [file for file in files if re.fullmatch(r"libnvrtc\.so\.\d+", file.name)]
    if not libraries:
        pytest.skip(f"{WHEEL} brings no library for this platform")
    return ctypes.CDLL(str(libraries[0].locate()))


def compile_cuda(nvrtc, source, architecture):
    """What the compiler has to say about `source`, empty if nothing; and the PTX it made."""
    program, options = ctypes.c_void_p(), (ctypes.c_char_p * 1)(f"-arch={architecture}".encode())
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"source.cu", 0, None, None)
    status = nvrtc.nvrtcCompileProgram(program, 1, options)
    log = read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
    ptx = "" if status else read(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return log, ptx


def read(measure, get, program):
    size = ctypes.c_size_t()
    measure(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    get(program, text)
    return text.value.decode().strip()


@pairs(
    architecture=["sm_80", "sm_90"],
    sources={"float32": SOURCES, "bfloat16": BFLOAT16_SOURCES},
    name=list(SOURCES),
)
def test_every_cuda_source_compiles_without_messages(nvrtc, name, sources, architecture):
    log, ptx = compile_cuda(nvrtc, sources[name], architecture)
    assert log == ""
    assert re.findall(r"\.visible \.entry (\w+)\(", ptx) == list(KERNELS[name])
    if name in ("sparse", "replica"):  # neither to find a cell nor to unroll a loop:
        assert divisions(ptx) == []  # a division costs more than a load


def test_divisions_are_found(nvrtc):
    code = 'extern "C" __global__ void f(long long* x) { x[0] = x[1] / x[2] + x[3] % x[4]; }'
    assert set(divisions(compile_cuda(nvrtc, code, "sm_90")[1])) >= {"div.s64", "rem.s64"}


def divisions(ptx):
    """The integer divisions in `ptx`, and calls of functions, which may divide."""
    return re.findall(r"\b(?:(?:div|rem)\.[su]\d+|call)\b", ptx)


def test_every_source_file_is_compiled():
    assert {path.stem for path in (GPU / "cuda").glob("*.cu")} == set(SOURCES)


def test_every_kernel_is_launched_by_somebody():
    launched = set()
    for module in GPU.glob("*.py"):
        launched.update(re.findall(r'kernel\("(\w+)", "(\w+)"', module.read_text()))
    assert launched == {(source, name) for source, names in KERNELS.items() for name in names}


def test_the_sources_are_installed_with_the_package():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["hogbatch"]
    installed = {path for pattern in patterns for path in (PROJECT / "hogbatch").glob(pattern)}
    assert set((GPU / "cuda").iterdir()) <= installed
