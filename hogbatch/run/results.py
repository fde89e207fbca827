"""What a run saves when it ends, and where else if the run directory cannot take it."""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from hogbatch.checkpoint import folder
from hogbatch.checkpoint.files import replace_file
from hogbatch.checkpoint.rundir import MODEL, SUMMARY, RunDirectory
from hogbatch.errors import SaveError
from hogbatch.model.file import Model, save_model


class Result(NamedTuple):
    """One file to save."""

    what: str
    name: str
    write: Callable[[Path], None]  # to that path; SaveError


def save_results(
    directory: RunDirectory, model: Model | None, summary: Mapping[str, object]
) -> None:
    """Write `model`, unless it is None, and summary.json into the run directory.

    What cannot be written there is written to a new temporary directory of this user alone (0700).
    SaveError in that case too; it says what was saved, and where.
    """
    results = [Result("summary", SUMMARY, partial(write_summary, summary))]
    if model is not None:
        results.insert(0, Result("model", MODEL, partial(save_model, model)))
    failed: list[Result] = []
    said: list[str] = []
    for result in results:
        path = directory.path / result.name
        try:
            if result.name == MODEL:
                with directory.saving():
                    result.write(path)
            else:
                directory.expect_in_place()
                result.write(path)
            said.append(f"the {result.what} is in {path}")
        except SaveError as error:
            said.append(str(error))
            failed.append(result)
    if failed:
        said += [*_save_elsewhere(failed), _newest_checkpoint(directory.checkpoints)]
        raise SaveError("; ".join(dict.fromkeys(said)))  # the same reason may be there twice


def write_summary(summary: Mapping[str, object], path: Path) -> None:
    """Write summary.json at once, the old file or the new one; SaveError when that fails."""
    try:
        replace_file(path, [(json.dumps(summary, indent=2) + "\n").encode()])
    except OSError as error:
        reason = error.strerror or error
        raise SaveError(f"{path}: cannot save the summary: {reason}") from error


def _save_elsewhere(results: Sequence[Result]) -> list[str]:
    """Write what could not be saved to a temporary directory; a clause about each."""
    try:
        place = Path(tempfile.mkdtemp(prefix="hogbatch-run-"))  # mode 0700
    except OSError as error:
        return [f"no temporary directory could be made either: {error.strerror}"]
    said = []
    for result in results:
        try:
            result.write(place / result.name)
            said.append(f"the {result.what} is in {place / result.name} instead")
        except SaveError as error:
            said.append(f"the {result.what} is lost: {error}")
    with suppress(OSError):  # something was saved in it
        place.rmdir()
    return said


def _newest_checkpoint(checkpoints: Path) -> str:
    with suppress(OSError):
        if found := folder.paths(checkpoints):
            return f"the newest checkpoint is {found[0]}"
    return f"there is no checkpoint in {checkpoints}"
