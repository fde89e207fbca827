import subprocess
import sys

from hogbatch.machine.allocator import keep_freed_memory, return_freed_memory

# Prints the page faults of filling 100 MB, after as much was filled and freed.
PROGRAM = """
import ctypes
from resource import RUSAGE_SELF, getrusage
from hogbatch.machine.allocator import keep_freed_memory

ctypes.CDLL(None).prctl({no_huge_pages}, 1, 0, 0, 0)  # one fault for each 4 KiB
if {keep}:
    keep_freed_memory()
b"x" * 100_000_000
before = getrusage(RUSAGE_SELF).ru_minflt
b"y" * 100_000_000
print(getrusage(RUSAGE_SELF).ru_minflt - before)
"""

# Prints the bytes that are returned after 100 MB were freed, except for the last object.
TRIM = """
from pathlib import Path
from hogbatch.machine.allocator import return_freed_memory

def resident():
    return 4096 * int(Path("/proc/self/statm").read_text().split()[1])

blocks = [bytearray(10_000) for _ in range(10_000)]
last = blocks[-1]
blocks.clear()
before = resident()
return_freed_memory()
print(before - resident())
"""


def printed(program):
    command = [sys.executable, "-c", program]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_freed_memory_is_used_again_without_page_faults():
    assert printed(PROGRAM.format(keep=False, no_huge_pages=41)) > 1000
    assert printed(PROGRAM.format(keep=True, no_huge_pages=41)) < 100


def test_freed_memory_below_other_objects_is_returned_and_other_c_libraries_left_alone(monkeypatch):
    assert printed(TRIM) > 50_000_000
    monkeypatch.setattr("hogbatch.machine.allocator.ctypes.CDLL", lambda name: object())
    assert not keep_freed_memory()
    return_freed_memory()
