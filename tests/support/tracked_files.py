"""The files of the repository, whatever else lies in the checkout."""

import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@cache
def tracked_files() -> frozenset[Path]:
    """Absolute paths of the files that git tracks and that exist, without links.

    Skips the test, or the module, in a copy of the sources that is not a git repository.
    """
    if not (ROOT / ".git").exists():
        pytest.skip(f"{ROOT} is not a git repository", allow_module_level=True)
    # A checkout may be owned by another user, which git refuses without this setting.
    command = ("git", "-c", "safe.directory=*", "ls-files", "-z")
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    found = (ROOT / name for name in listed.split("\0") if name)
    return frozenset(file for file in found if file.exists() and not file.is_symlink())


@cache
def tracked_directories() -> frozenset[Path]:
    """The directories of these files."""
    return frozenset(parent for file in tracked_files() for parent in file.parents)


def python_files(*folders: str) -> list[Path]:
    """The tracked Python files below folders of the repository, in order."""
    roots = [ROOT / folder for folder in folders]
    return sorted(
        file
        for file in tracked_files()
        if file.suffix == ".py" and any(root in file.parents for root in roots)
    )
