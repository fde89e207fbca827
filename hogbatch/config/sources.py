"""The configuration of a run: merged from flags, a TOML file and the defaults, and validated.

A value is text (a flag) or a Python value (TOML, Python). Flags take precedence over the file, the
file over the defaults. Every error is a UsageError.
"""

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hogbatch.config.flags import as_text, dashed
from hogbatch.config.suggest import meant
from hogbatch.config.train import FLAGS, TrainConfig
from hogbatch.config.values import WorkerRequest
from hogbatch.errors import UsageError


def merge_sources(flags: Mapping[str, object], file: Path | None = None) -> TrainConfig:
    """Return the validated configuration from `flags` and a TOML file.

    The values of `flags` are text or Python values; None means that a flag is not given.
    """
    values: dict[str, Any] = {}
    if file is not None:
        for key, value in _load_toml(file).items():
            name = _field_name(key, f"{file}: ")
            if name in values:
                raise UsageError(f"{file}: {dashed(name)} is given twice, with - and with _")
            values[name] = _convert(name, FLAGS[name].value_type.from_value, value, f"{file}: ")
    for key, value in flags.items():
        name = _field_name(key, "")
        value_type = FLAGS[name].value_type
        if value is not None:
            converter = value_type.from_text if isinstance(value, str) else value_type.from_value
            values[name] = _convert(name, converter, value, "")
    return validated(TrainConfig(**values))


def flag_value(name: str, text: str) -> Any:
    """The value of one flag; UsageError if it is not valid."""
    value = _convert(name, FLAGS[name].value_type.from_text, text, "")
    _expect_valid(name, value)
    return value


def _load_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{file}: cannot read the configuration: {error.strerror}") from None
    except ValueError as error:  # not TOML, or not UTF-8
        raise UsageError(f"{file}: expected a TOML file; {error}") from None


def _field_name(key: str, where: str) -> str:
    """Return the field for `key`, which may be written with - or _."""
    name = key.replace("-", "_")
    if name not in FLAGS:
        nearest = meant(dashed(key), list(map(dashed, FLAGS)))
        hint = f"the nearest is {nearest!r}" if nearest else "hogbatch train --help lists all keys"
        raise UsageError(f"{where}unknown key {key!r}; {hint}")
    return name


def _convert(name: str, converter: Callable[[Any], object], value: object, where: str) -> object:
    try:
        return converter(value)
    except UsageError as error:
        raise UsageError(f"{where}{dashed(name)}: {error}") from None
    except (ValueError, OverflowError):
        expected = FLAGS[name].value_type.expected
        raise UsageError(f"{where}{dashed(name)}: expected {expected}; got {value!r}") from None


def validated(config: TrainConfig) -> TrainConfig:
    """Check every value and resolve `deterministic`; UsageError for the first invalid value."""
    if not config.data:
        raise UsageError("DATA is missing; give a file, or the name of the bundled sample")
    for name in FLAGS:
        _expect_valid(name, getattr(config, name))
    if config.resume == "auto" and config.run_dir is None:
        raise UsageError("resume auto needs run-dir; or give resume a run directory")
    return _with_one_thread(config) if config.deterministic else config


def _expect_valid(name: str, value: object) -> None:
    value_type = FLAGS[name].value_type
    for item in value if isinstance(value, tuple) else (value,):
        if item is not None and not value_type.accepts(item):
            raise UsageError(f"{dashed(name)} must be {value_type.condition}; got {item!r}")


def _with_one_thread(config: TrainConfig) -> TrainConfig:
    """Return the settings of a deterministic run: one CPU thread, stopped by epochs."""
    if config.max_seconds is not None and config.epochs is None:
        raise UsageError("deterministic needs epochs: max-seconds stops a run by the clock")
    one_thread = (WorkerRequest("cpu", threads=1),)
    if config.workers not in ("auto", one_thread):
        raise UsageError(f"deterministic needs workers cpu:1; got {as_text(config.workers)}")
    return replace(config, workers=one_thread)


def to_toml(config: TrainConfig) -> str:
    """Return `config` as TOML that :func:`merge_sources` reads back; None values are omitted."""
    values = {name: getattr(config, name) for name in FLAGS}
    lines = [f"{dashed(k)} = {_toml(v)}\n" for k, v in values.items() if v is not None]
    return "".join(lines)


def _toml(value: object) -> str:
    items = value if isinstance(value, tuple) else (value,)
    stored = value if all(isinstance(item, int | float | str) for item in items) else as_text(value)
    # JSON writes these values as TOML does, except for DEL.
    return json.dumps(stored, ensure_ascii=False).replace("\x7f", "\\u007f")
