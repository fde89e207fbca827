"""The cache of compiled kernels, also of users who cannot write to the usual directory."""

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hogbatch.jit import cache_directory
from tests.support.other_user import NOBODY, as_another_user, as_root

pytestmark = pytest.mark.slow

PROGRAM = """
import resource, sys
from hogbatch.jit import compiles, kernel

limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

@kernel
def double(x):
    return 2 * x

@kernel
def quadruple(x):
    return double(double(x))

assert not compiles()
assert quadruple(4) == 16
assert not double.for_python.signatures
assert double(4) == 8  # other code than that in `quadruple`, also in the cache
assert double(4.0) == 8.0
print(compiles())
"""


def run(folder, limit=-1, prefix=(), **environment):
    """Call a kernel in a process; return whether it was compiled, and the log."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    ran = subprocess.run(
        [*prefix, sys.executable, str(program), str(limit)],
        # With a limit on the size of files, Python would leave incomplete byte code of packages.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        cwd="/",
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip() == "True", ran.stderr


def test_a_kernel_is_compiled_once_for_all_processes_unless_it_cannot_be_kept(tmp_path):
    cache = str(tmp_path / "cache")
    compiled, said = run(tmp_path, limit=100, HOGBATCH_CACHE=cache)
    assert compiled
    assert said.startswith("WARNING") and said.count("\n") == 1
    assert "cannot be cached in" in said and "the file size limit is too low" in said
    assert run(tmp_path, HOGBATCH_CACHE=cache) == (True, "")
    assert run(tmp_path, limit=100, HOGBATCH_CACHE=cache) == (False, "")


@as_root
def test_another_user_without_a_home_directory_compiles_once(tmp_path):
    tmp_path.chmod(0o755)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o1777)
        for home, compiles in (("/root", True), ("/nonexistent", False)):
            environment = {"HOGBATCH_CACHE": "", "HOME": home, "TMPDIR": folder}
            assert run(tmp_path, prefix=as_another_user(), **environment) == (compiles, "")
        (kept,) = os.scandir(folder)
        assert kept.stat().st_mode & 0o777 == 0o700


@as_root
def test_kernels_are_compiled_even_if_no_file_can_be_created(tmp_path):
    tmp_path.chmod(0o755)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o1777)
        cache = Path(folder, "cache")
        cache.mkdir()
        (cache / cache_directory().name).touch()  # a file where the directory should be
        os.chown(cache, NOBODY["user"], NOBODY["group"])
        environment = {"HOGBATCH_CACHE": str(cache), "HOME": "/root"}
        _, said = run(tmp_path, prefix=as_another_user(), **environment)
    assert "compiled kernels cannot be cached in" in said and "File exists" in said


class Payload:
    """An object that creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@as_root
def test_code_that_another_user_has_placed_in_the_cache_is_not_run(tmp_path):
    """Numba's index files are pickles. The user owns the directory above, or may write into it."""
    shared, ran = tmp_path / "shared", tmp_path / "ran"
    cache = shared / "cache"
    assert run(tmp_path, HOGBATCH_CACHE=str(cache)) == (True, "")
    indexes = list(cache.rglob("*.nbi"))
    for index in indexes:
        index.write_bytes(pickle.dumps(Payload(ran)))
        os.chown(index, NOBODY["user"], NOBODY["group"])
    for folder, owner, mode in ((shared, NOBODY["user"], 0o755), (cache, os.getuid(), 0o1777)):
        os.chown(folder, owner, -1)
        folder.chmod(mode)
        own = tmp_path / f"of {folder.name}"
        own.mkdir()
        compiled, _ = run(tmp_path, HOGBATCH_CACHE=str(cache), TMPDIR=str(own))
        assert compiled and indexes and not ran.exists()
        os.chown(folder, os.getuid(), -1)
