"""C++ to shared libraries, kept by the hash of what they were made from."""

import ctypes
import os
import shutil
import stat
import subprocess
import tempfile
from functools import cache
from hashlib import blake2b
from pathlib import Path

SOURCE = Path(__file__).parent / "source"
FLAGS = (
    *("-x", "c++", "-std=c++17", "-O2", "-fPIC", "-shared", "-pthread", "-w"),
    *("-ffp-contract=off", "-fno-fast-math", "-fno-strict-aliasing", "-U_FORTIFY_SOURCE"),
)


class CompileException(Exception):
    """The C++ compiler is missing, or refuses a source."""


def compiler() -> str | None:
    """GCC, if this host has it; fibers use what its setjmp does, which Clang's does not."""
    return shutil.which("g++")


@cache
def library(name: str, source: str) -> ctypes.CDLL:
    """The shared library made of `source`; its name is for those who look at the folder."""
    return ctypes.CDLL(str(library_path(name, source)))


def library_path(name: str, source: str) -> Path:
    """Where the library made of `source` lies, compiled at its first call."""
    program = compiler()
    if program is None:
        raise CompileException("this host has no g++")
    digest = blake2b(repr((program, FLAGS, source)).encode(), digest_size=12).hexdigest()
    path = _folder() / f"{name}-{digest}.so"
    if not path.exists():
        _compile(program, source, path)
    return path


def _compile(program: str, source: str, path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        made = Path(scratch) / path.name
        command = [program, *FLAGS, "-o", str(made), "-"]
        answer = subprocess.run(command, input=source, capture_output=True, text=True)
        if answer.returncode != 0:
            raise CompileException(answer.stderr)
        os.replace(made, path)


def _folder() -> Path:
    """A directory of this user alone: what lies in it is executed."""
    path = Path(tempfile.gettempdir()) / f"cuda-on-host-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise CompileException(f"{path} must be a directory that only you can write to; move it")
    return path
