"""Compiles C++ to shared libraries, cached by the hash of their source."""

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
    """The C++ compiler is missing, or reports an error."""


def compiler() -> str | None:
    """The path of GCC, or None; fibers depend on GCC's setjmp, Clang's works differently."""
    return shutil.which("g++")


@cache
def library(name: str, source: str) -> ctypes.CDLL:
    """The shared library compiled from `source`; `name` only makes the file recognisable."""
    return ctypes.CDLL(str(library_path(name, source)))


def library_path(name: str, source: str) -> Path:
    """The path of the library compiled from `source`, which is compiled at the first call."""
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
    """The cache directory, private to this user because its contents are executed."""
    path = Path(tempfile.gettempdir()) / f"cuda-on-host-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise CompileException(f"{path} must be a directory that only you can write to; move it")
    return path
