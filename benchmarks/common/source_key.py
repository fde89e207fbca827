"""A key of the program's sources, by which results of another version are recognised."""

from functools import cache
from hashlib import sha256
from pathlib import Path

from hogbatch.version import version

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = (".py", ".cu")  # of files that change what a run computes


@cache
def source_key() -> str:
    """The version, and a hash of the sources of `hogbatch` and `workers`."""
    digest = sha256()
    paths = (path for folder in ("hogbatch", "workers") for path in (ROOT / folder).rglob("*"))
    for path in sorted(path for path in paths if path.suffix in SUFFIXES):
        digest.update(f"{path.relative_to(ROOT)}\n".encode())
        digest.update(path.read_bytes())
    return f"{version()}-{digest.hexdigest()[:12]}"
