"""The version of this source tree, whether it is installed or runs from a checkout."""

import tomllib
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


@cache
def version() -> str:
    """The version in the pyproject.toml beside the package, else that of the installed package.

    In a checkout, another version may be installed, or none.
    """
    project = PACKAGE.parent / "pyproject.toml"
    if project.is_file():
        return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"])
    from importlib import metadata  # here: the import is slow, and a checkout does not need it

    return metadata.version("hogbatch")
