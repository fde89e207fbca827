"""RawKernel: CUDA C compiled by the host compiler and launched in the current stream."""

import ctypes
import re
from typing import Any

import numpy as np

from cupy import _compile
from cupy._arrays import ndarray
from cupy._copies import MemoryPointer
from cupy._device import LOCK, CUDARuntimeError
from cupy._memory import Region, reachable
from cupy._streams import get_current_stream

MAX_SHARED = 48 << 10  # bytes of dynamic shared memory, unless the kernel is allowed more
_NAME = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(")
_DYNAMIC = re.compile(
    r"extern\s+__shared__\s+(?:__align__\s*\(\d+\)\s*)?([\w ]+?)\s+(\w+)\s*\[\s*\]\s*;"
)
_LAUNCHER = """
extern "C" void describe_{name}(char* text) {{ Of_{name}::describe(text); }}
extern "C" int launch_{name}(const unsigned* grid, const unsigned* block, size_t shared,
                             void** given, char* message)
{{
    return running::launch(Of_{name}::call, grid, block, shared, given, message);
}}
"""


class RawKernel:
    def __init__(self, code: str, name: str, options: tuple[str, ...] = ()) -> None:
        self.code = code
        self.name = name
        self.options = options
        self.max_dynamic_shared_size_bytes = MAX_SHARED
        self._launch: Any = None

    def compile(self) -> None:
        """Compile the kernel, as the first call does."""
        with LOCK:
            if self._launch is not None:
                return
            library = _compile.library("kernels", translate(self.code, self.options))
            if not hasattr(library, f"launch_{self.name}"):
                raise CUDARuntimeError(f"CUDA_ERROR_NOT_FOUND: no kernel {self.name!r} in the code")
            text = ctypes.create_string_buffer(4096)
            library[f"describe_{self.name}"](text)
            self._parameters = text.value.decode().split()
            self._launch = library[f"launch_{self.name}"]

    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], args: Any, *, shared_mem: int = 0
    ) -> None:
        self.compile()
        grid, block = (tuple(each) + (1, 1, 1)[len(each) :] for each in (grid, block))
        self._check(grid, block, shared_mem)
        arguments = [self._argument(n, each) for n, each in enumerate(args)]
        if len(arguments) != len(self._parameters):
            raise TypeError(
                f"kernel {self.name} takes {len(self._parameters)} arguments, got {len(arguments)}"
            )
        regions = tuple(region for each in args for region in _regions(each))
        get_current_stream().enqueue(lambda: self._run(grid, block, shared_mem, arguments), regions)

    def _check(self, grid: tuple[int, ...], block: tuple[int, ...], shared: int) -> None:
        """Check the limits that apply to all GPUs."""
        threads = block[0] * block[1] * block[2]
        fits = threads <= 1024 and block[2] <= 64 and grid[0] < 1 << 31 and max(grid[1:]) < 1 << 16
        if not fits or min(*grid, *block) < 1 or shared > self.max_dynamic_shared_size_bytes:
            raise CUDARuntimeError(
                f"CUDA_ERROR_INVALID_VALUE: kernel {self.name} with grid {grid}, block {block}, "
                f"{shared} bytes of shared memory"
            )

    def _argument(self, number: int, value: Any) -> ctypes.Array[ctypes.c_char]:
        """The bytes of one argument, by CuPy's conventions; TypeError if its type is wrong."""
        kind, content = _bytes_of(value)
        given = f"{kind}{len(content)}"
        takes = self._parameters[number] if number < len(self._parameters) else given
        if given != takes and (given, takes) != ("i8", "p8"):
            raise TypeError(
                f"argument {number} of kernel {self.name}: got {given}, expected {takes} "
                "(p: pointer, i: integer, f: floating point, s: struct; size in bytes)"
            )
        return ctypes.create_string_buffer(content, len(content))

    def _run(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        shared: int,
        arguments: list[ctypes.Array[ctypes.c_char]],
    ) -> None:
        sizes = [(ctypes.c_uint * 3)(*each) for each in (grid, block)]
        given = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        message = ctypes.create_string_buffer(256)
        with LOCK:
            failed = self._launch(*sizes, ctypes.c_size_t(shared), given, message)
        if failed:
            raise CUDARuntimeError(
                f"cudaErrorLaunchFailure: kernel {self.name}, {message.value.decode()}"
            )


def translate(code: str, options: tuple[str, ...] = ()) -> str:
    """Translate to C++ for the host, with launch_NAME and describe_NAME for each kernel."""
    defines = [
        "#define " + option[2:].replace("=", " ", 1) for option in options if option[:2] == "-D"
    ]
    names = list(dict.fromkeys(_NAME.findall(code)))
    code = _DYNAMIC.sub(r"\1* \2 = (\1*)running::dynamic_shared;", code)
    parts = [(_compile.SOURCE / name).read_text() for name in ("cuda.h", "launch.h")]
    parts += [*defines, "namespace {", '#line 1 "source.cu"', code.replace('extern "C"', "")]
    parts += [f"struct Of_{name} : running::Caller<&{name}> {{}};" for name in names]
    parts += ["}", *(_LAUNCHER.format(name=name) for name in names)]
    return "\n".join(parts)


def _bytes_of(value: Any) -> tuple[str, bytes]:
    """The kind and bytes that CuPy passes for a value."""
    if isinstance(value, (ndarray, MemoryPointer)):
        address = value.data.ptr if isinstance(value, ndarray) else value.ptr
        return "p", np.int64(address).tobytes()
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(())[()]
    if isinstance(value, np.generic):
        return {"f": "f", "V": "s"}.get(value.dtype.kind, "i"), value.tobytes()
    if isinstance(value, int):
        return "i", np.int64(value).tobytes()
    if isinstance(value, float):
        return "f", np.float64(value).tobytes()
    raise TypeError(f"Unsupported type {type(value)}")


def _regions(value: Any) -> tuple[Region, ...]:
    """The memory regions that an argument points to."""
    if isinstance(value, ndarray):
        return value.regions
    return (reachable(value.ptr, 1),) if isinstance(value, MemoryPointer) else ()
