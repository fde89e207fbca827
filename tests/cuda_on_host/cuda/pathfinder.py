"""The part of cuda-pathfinder that finds the stand-in for cuBLASLt."""

from dataclasses import dataclass

from cupy import _compile, _cublaslt


class DynamicLibNotFoundError(RuntimeError):
    pass


@dataclass
class LoadedDL:
    abs_path: str


def load_nvidia_dynamic_lib(libname: str) -> LoadedDL:
    if libname != "cublasLt":
        raise DynamicLibNotFoundError(f"the stand-in provides only cublasLt, not {libname}")
    try:
        return LoadedDL(str(_cublaslt.library_path()))
    except _compile.CompileException as refused:
        raise DynamicLibNotFoundError(str(refused)) from refused
