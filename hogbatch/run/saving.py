"""Saving the results of a run: in its directory, or elsewhere if that cannot be written."""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from hogbatch.errors import SaveError
from hogbatch.events.names import MODEL, SUMMARY
from hogbatch.machine.files import replace_file
from hogbatch.model.file import save_model
from hogbatch.model.trained import Model
from hogbatch.run.rundir import RunDirectory

RETRY_S: Final = 5.0  # between two attempts to save a model that cannot be saved anywhere
MAX_ATTEMPTS: Final = 120

Summary = Mapping[str, object]
Summarise = Callable[[], Summary]
Place = str | None  # a directory; None: the one for temporary files


class NowhereSaved(SaveError):
    """The model cannot be saved anywhere."""


def other_places(data: str) -> list[Place]:
    """Where to save what the run directory cannot take; `data` is the path of the data."""
    return [None, os.path.expanduser("~"), os.path.dirname(os.path.abspath(data))]


def save_results(
    directory: RunDirectory,
    model: Model | None,
    summarise: Summarise,
    places: Sequence[Place],
    say: Callable[[str], None],
) -> None:
    """Write `model`, unless it is None, and then summary.json into the run directory.

    `summarise` returns the contents of summary.json. Errors in it do not cost the model.

    If that fails, what is missing is written to a new directory of mode 0700 in the first of
    `places` that can take it, and SaveError says where the model is. A model that cannot be saved
    anywhere is tried again, up to MAX_ATTEMPTS times in all; Ctrl-C ends this.
    """
    for attempt in range(1, MAX_ATTEMPTS):
        try:
            return _save(directory, model, summarise, places)
        except NowhereSaved as error:
            if attempt == 1:
                say(
                    f"{error}; free some disk space: saving is tried again every {RETRY_S:g} s for "
                    f"{RETRY_S * MAX_ATTEMPTS / 60:g} minutes, or until Ctrl-C"
                )
        try:
            time.sleep(RETRY_S)
        except KeyboardInterrupt:
            break
    _save(directory, model, summarise, places)


def _save(
    directory: RunDirectory, model: Model | None, summarise: Summarise, places: Sequence[Place]
) -> None:
    path, missing = directory.path, model
    try:
        directory.expect_in_place()
        if model is not None:
            save_model(model, path / MODEL)
            missing = None
        _write_summary(path, summarise())
    except SaveError as error:
        saved = "" if missing is model else f"; the model is in {path / MODEL}"
        label, name = ("summary", SUMMARY) if missing is None else ("model", MODEL)
        folder, refused = _save_elsewhere(missing, summarise, places)
        if folder is None:
            kind = SaveError if missing is None else NowhereSaved
            raise kind(
                f"{error}{saved}; the {label} cannot be saved elsewhere: {'; '.join(refused)}"
            ) from error
        directory.point_to(folder)
        raise SaveError(f"{error}{saved}; the {label} is in {folder / name} instead") from error


def _save_elsewhere(
    model: Model | None, summarise: Summarise, places: Sequence[Place]
) -> tuple[Path | None, list[str]]:
    """Write the results to a new directory in one of `places`; return it, and why not others."""
    refused: list[str] = []
    for place in dict.fromkeys(places):
        try:
            return _save_in(place, model, summarise), refused
        except SaveError as error:
            refused.append(str(error))
        except OSError as error:
            refused.append(f"{place or 'no temporary directory'}: {error.strerror}")
    return None, refused


def _save_in(place: Place, model: Model | None, summarise: Summarise) -> Path:
    """Write the results to a new directory in `place`; OSError or SaveError, then none is left."""
    folder = Path(tempfile.mkdtemp(prefix="hogbatch-run-", dir=place))  # mode 0700
    try:
        if model is not None:
            save_model(model, folder / MODEL)
        _write_summary(folder, summarise())
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def _write_summary(path: Path, summary: Summary) -> None:
    try:
        replace_file(path / SUMMARY, [(json.dumps(summary, indent=2) + "\n").encode()])
    except OSError as error:
        reason = error.strerror or error
        raise SaveError(f"{path / SUMMARY}: cannot save the summary: {reason}") from error
