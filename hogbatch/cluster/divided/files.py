"""The files of a folder of training data."""

from pathlib import Path

from hogbatch.data.source import shown
from hogbatch.errors import DataError
from hogbatch.machine.printable import quoted


def list_parts(folder: Path) -> tuple[Path, ...]:
    """The data files of `folder`, sorted by name.

    Names that start with "." or "_" are left out, as in folders of Parquet files. DataError
    if the folder contains no file, or contains another folder.
    """
    if not folder.is_dir():
        what = "a file" if folder.exists() else "nothing there"
        raise DataError(f"{shown(folder)}: expected a folder of data files; got {what}")
    try:
        found = sorted(each for each in folder.iterdir() if each.name[0] not in "._")
    except OSError as error:
        raise DataError(f"{shown(folder)}: cannot list the folder: {error.strerror}") from None
    if inner := next((each for each in found if each.is_dir()), None):
        raise DataError(
            f"{shown(folder)}: expected only data files; got the folder {quoted(inner.name)}; move "
            "its files up"
        )
    if not found:
        raise DataError(f"{shown(folder)}: expected data files; the folder has none")
    return tuple(found)
