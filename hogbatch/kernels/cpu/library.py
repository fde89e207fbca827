"""Machine code that LLVM makes of our own IR: compiled once, kept as an object file, loaded later.

Numba compiles a function anew into each function that calls it. The micro-kernels are many, so
they live in a library of their own, which compiled functions find by name.
"""

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils

from hogbatch.jit import cache_directory

CHECKSUM_BYTES = 16

_engines = []  # as long as an engine lives, so does its code


def load(name: str, write: Callable[[ir.Module], list[str]]) -> None:
    """Make the functions that `write` writes known to compiled code; it returns their names."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = ir.Module(name)
    functions = write(module)
    target = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        jit=True,
    )
    module.triple, module.data_layout = target.triple, str(target.target_data)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)
    engine.add_object_file(_object_file(module, target))
    engine.finalize_object()
    for function in functions:
        llvm.add_symbol(function, engine.get_function_address(function))
    _engines.append(engine)


def call(builder: ir.IRBuilder, name: str, arguments: Sequence[ir.Value]) -> None:
    """Call a function of a library, or an intrinsic of LLVM; the linker finds it by name."""
    kind = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def pointers(
    builder: ir.IRBuilder, addresses: Sequence[ir.Value], kinds: Sequence[ir.Type]
) -> list[ir.Value]:
    """Integers as arguments of `kinds`: as pointers where these are pointers."""
    return [
        builder.inttoptr(address, kind) if kind.is_pointer else address
        for address, kind in zip(addresses, kinds, strict=True)
    ]


def _object_file(module: ir.Module, target: llvm.TargetMachine) -> llvm.ObjectFileRef:
    """Compile `module`, unless these very instructions lie in the cache, compiled for this host."""
    text = str(module)
    host = (llvmlite.__version__, llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())
    digest = blake2b(repr((*host, text)).encode(), digest_size=8).hexdigest()
    path = cache_directory() / f"{module.name}-{digest}.o"
    with suppress(OSError):
        content = path.read_bytes()
        code, checksum = content[:-CHECKSUM_BYTES], content[-CHECKSUM_BYTES:]
        if checksum == _checksum(code):  # a damaged file would crash the process
            return llvm.ObjectFileRef.from_data(code)
    code = target.emit_object(llvm.parse_assembly(text))
    _keep(path, code + _checksum(code))
    return llvm.ObjectFileRef.from_data(code)


def _checksum(code: bytes) -> bytes:
    return blake2b(code, digest_size=CHECKSUM_BYTES).digest()


def _keep(path: Path, content: bytes) -> None:
    """Write `content` at once or not at all; a cache that cannot be written is no error."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(content)
        os.replace(file.name, path)
