"""Surveys of divided data: the files of a folder are read by the servers, a part by each.

The process that trains learns from them what it needs to know of the rows, and never has the rows
themselves. When a server starts, it reads its files again, encoded as all rows are
(:mod:`hogbatch.cluster.divided.reading`).
"""

import tomllib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec

from hogbatch.cluster.decisions.division import divide
from hogbatch.cluster.divided.decide import DividedData, decide, with_held_out
from hogbatch.cluster.divided.reading import survey
from hogbatch.cluster.divided.records import PartSurvey
from hogbatch.config.sources import merge_sources, to_toml
from hogbatch.config.train import TrainConfig
from hogbatch.data.cache import DataCache
from hogbatch.data.order import Fractions
from hogbatch.data.raw import ReadOptions
from hogbatch.data.source import shown
from hogbatch.errors import DataError
from hogbatch.machine.printable import quoted

VALIDATION: Final = 0.1  # default fraction of the rows of each file
# Answers requests on the machines of the servers: request i on that of server i.
Survey = Callable[[Sequence[bytes]], list[bytes]]


class SurveyRequest(msgspec.Struct, frozen=True):
    """Files to read on one machine."""

    settings: str  # as TOML: those of `hogbatch train`
    parts: tuple[tuple[int, str], ...]  # number and path of each


def answer(request: bytes) -> bytes:
    """Read the files of an encoded request on this machine; DataError if they are invalid."""
    message = msgspec.msgpack.decode(request, type=SurveyRequest)
    config = merge_sources(tomllib.loads(message.settings))
    cache = DataCache.of(config.data_cache)
    options = ReadOptions.of(config)
    read = partial(survey, fractions=_fractions(config), seed=config.seed, cache=cache)
    surveys = [read(Path(path), number, options) for number, path in message.parts]
    return msgspec.msgpack.encode(surveys)


def survey_folder(config: TrainConfig, servers: int, ask: Survey) -> DividedData:
    """Survey the folder DATA on the machines of `servers` servers, and decide how it is encoded.

    DataError if the folder or a file is invalid, UsageError if it cannot be divided.
    """
    folder = Path(config.data).absolute()
    files = list_parts(folder)
    numbers_by_server = divide([file.stat().st_size for file in files], servers, copies=1)
    requests = (
        SurveyRequest(to_toml(config), tuple((number, str(files[number])) for number in numbers))
        for numbers in numbers_by_server
    )
    answers = ask([msgspec.msgpack.encode(request) for request in requests])
    decoded = (msgspec.msgpack.decode(each, type=list[PartSurvey]) for each in answers)
    data = decide(
        folder,
        list(chain.from_iterable(decoded)),
        loss=config.loss,
        scale=config.scale,
        fractions=_fractions(config),
        seed=config.seed,
    )
    for name, file in config.held_out_files.items():
        given = ReadOptions.of(config), DataCache.of(config.data_cache)
        data = with_held_out(data, name, Path(file).absolute(), *given)
    return data


def list_parts(folder: Path) -> tuple[Path, ...]:
    """The data files of `folder`, sorted by name.

    Names that start with "." or "_" are left out, as in folders of Parquet files. DataError
    if the folder contains no file, or contains another folder.
    """
    if not folder.is_dir():
        what = "a file" if folder.exists() else "nothing there"
        raise DataError(f"{shown(folder)}: expected a folder of data files; got {what}")
    try:
        files = sorted(each for each in folder.iterdir() if each.name[0] not in "._")
    except OSError as error:
        raise DataError(f"{shown(folder)}: cannot list the folder: {error.strerror}") from None
    if inner := next((each for each in files if each.is_dir()), None):
        raise DataError(
            f"{shown(folder)}: expected only data files; got the folder {quoted(inner.name)}; move "
            "its files up"
        )
    if not files:
        raise DataError(f"{shown(folder)}: expected data files; the folder has none")
    return tuple(files)


def _fractions(config: TrainConfig) -> Fractions:
    """The fractions of the rows of each file that are held out."""
    validation = VALIDATION if config.validation_fraction is None else config.validation_fraction
    files = config.held_out_files
    return Fractions(
        0 if "test" in files else config.test_fraction, 0 if "validation" in files else validation
    )
