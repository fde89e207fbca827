"""The library cache, tested in separate processes: only the next process loads from the cache."""

import os
import subprocess
import sys

import numba
import pytest

pytestmark = [
    pytest.mark.skipif(numba.config.DISABLE_JIT, reason="without the JIT there is no library"),
    pytest.mark.slow,
]

# Prints how often LLVM generated machine code, and whether the code is correct.
PROGRAM = """
import llvmlite.binding as llvm
compiled = 0
emit = llvm.TargetMachine.emit_object
def counted(self, module):
    global compiled
    compiled += 1
    return emit(self, module)
llvm.TargetMachine.emit_object = counted
import numpy as np
from hogbatch.kernels.cpu import library, operations
asked = compiled
x, w = np.ones((3, 40), np.float32), np.ones((40, 48), np.float32)
out = np.zeros((3, 48), np.float32)
operations.dense_forward(x, w, np.ones(48, np.float32), 0, 48, x, out)
assert (out == 41).all()
print(asked)
"""


def compilations(cache):
    environment = os.environ | {"HOGBATCH_CACHE": str(cache)}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    return int(ran.stdout)


def test_the_library_is_compiled_once_for_all_processes(tmp_path):
    assert compilations(tmp_path) > 0
    assert compilations(tmp_path) == 0


def test_a_corrupt_library_is_compiled_again(tmp_path):
    compilations(tmp_path)
    for file in tmp_path.rglob("*.o"):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    assert compilations(tmp_path) > 0
    for file in tmp_path.rglob("*.o"):
        os.truncate(file, 10)
    assert compilations(tmp_path) > 0
    assert compilations(tmp_path) == 0
