"""The part of cuda-pathfinder that finds the stand-ins for cuBLAS and cuBLASLt."""

from dataclasses import dataclass

from cupy import _compile, _cublas, _cublaslt

_LIBRARIES = {"cublas": _cublas.library_path, "cublasLt": _cublaslt.library_path}


class DynamicLibNotFoundError(RuntimeError):
    pass


@dataclass
class LoadedDL:
    abs_path: str


def load_nvidia_dynamic_lib(libname: str) -> LoadedDL:
    if libname not in _LIBRARIES:
        raise DynamicLibNotFoundError(f"the stand-in provides only {[*_LIBRARIES]}, not {libname}")
    try:
        return LoadedDL(str(_LIBRARIES[libname]()))
    except _compile.CompileException as refused:
        raise DynamicLibNotFoundError(str(refused)) from refused
