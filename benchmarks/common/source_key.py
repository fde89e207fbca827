"""A key of the program's sources, by which results of another version are recognised."""

from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from pathlib import Path

from hogbatch.version import version

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = (".py", ".cu")  # of files that change what a run computes


@cache
def source_key(without: tuple[str, ...] = ()) -> str:
    """The version, and a hash of the sources of `hogbatch` and `workers`.

    The packages of `hogbatch` in `without` are left out: those that the results do not depend on.
    """
    left_out = [f"hogbatch/{name}" for name in without]
    return f"{version()}-{files_key(['hogbatch', 'workers'], left_out)}"


def files_key(folders: Iterable[str], without: Iterable[str] = ()) -> str:
    """A hash of the sources in `folders` of the repository, less those in folders of `without`."""
    digest = sha256()
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*"))
    left_out = [ROOT / folder for folder in without]
    for path in sorted(path for path in paths if path.suffix in SUFFIXES):
        if any(folder in path.parents for folder in left_out):
            continue
        digest.update(f"{path.relative_to(ROOT)}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
