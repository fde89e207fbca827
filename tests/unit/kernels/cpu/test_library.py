"""The library cache, tested in separate processes: only the next process loads from the cache."""

import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.no_own_indices]

# Loads a library with one function, which returns 3, and prints how often its IR was written.
PROGRAM = """
import ctypes
import llvmlite.binding as llvm
from llvmlite import ir
from hogbatch.kernels.cpu import library
number = ir.IntType(64)
written = 0
def write(module):
    global written
    written += 1
    function = ir.Function(module, ir.FunctionType(number, []), "three")
    ir.IRBuilder(function.append_basic_block()).ret(number(3))
    return ["three"]
library.load("sample", write)
three = ctypes.CFUNCTYPE(ctypes.c_int64)(llvm.address_of_symbol("three"))
assert three() == 3
print(written)
"""


def compilations(cache):
    environment = os.environ | {"HOGBATCH_CACHE": str(cache)}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    return int(ran.stdout)


def test_the_library_is_compiled_once_for_all_processes_and_again_if_it_is_corrupt(tmp_path):
    assert compilations(tmp_path) == 1
    assert compilations(tmp_path) == 0
    for file in tmp_path.rglob("*.o"):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    assert compilations(tmp_path) == 1
    for file in tmp_path.rglob("*.o"):
        os.truncate(file, 10)
    assert compilations(tmp_path) == 1
