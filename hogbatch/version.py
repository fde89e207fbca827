"""The version of this source tree, whether it is installed or runs from a checkout."""

import tomllib
from functools import cache
from pathlib import Path

from hogbatch.errors import HogbatchError

PACKAGE = Path(__file__).resolve().parent


@cache
def version() -> str:
    """The `version` of the pyproject.toml beside the package, else that of the installed package.

    In a checkout, another version may be installed, or none. Raises HogbatchError if the package
    was copied from a checkout without its pyproject.toml.
    """
    found = _of_checkout(PACKAGE.parent / "pyproject.toml") or _of_installation()
    if found is None:
        raise HogbatchError(
            f"the version of {PACKAGE} is unknown: it is not an installed package, and there is no "
            f"pyproject.toml of hogbatch in {PACKAGE.parent}; copy that file of the checkout, too"
        )
    return found


def _of_checkout(path: Path) -> str | None:
    """The version in a pyproject.toml; None if it is of another project or cannot be read."""
    try:
        project = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {})
    except (OSError, tomllib.TOMLDecodeError):
        return None
    return str(project["version"]) if project.get("name") == "hogbatch" else None


def _of_installation() -> str | None:
    """The version of the installed package; None if it is not the one imported."""
    from importlib import metadata  # here: the import is slow, and a checkout does not need it

    try:
        installed = metadata.distribution("hogbatch")
    except metadata.PackageNotFoundError:
        return None
    imported = Path(str(installed.locate_file("hogbatch"))).resolve() == PACKAGE
    return installed.version if imported else None
