"""Measures how fast a device trains a network, and caches the result."""

import hashlib
import json
import logging
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from hogbatch.machine.cachedir import cache_root
from hogbatch.model.layers import layer_to_file
from workers.session import Assignment, Profile
from workers.trainer import Trainer

MIN_BATCH = 16  # rows of the first measured batch; the size then doubles
MAX_BATCH_SECONDS = 0.25  # the last measured batch is the first one that takes longer
MIN_SPEEDUP = 1.02  # in rows per second; measuring stops after two doublings with less
DENSIFY_TEST_ROWS = 1024  # rows of the batch that compares sparse with dense rows


@dataclass(frozen=True, slots=True)
class MeasuredSpeeds:
    """Measured speeds of a network on a device."""

    densify: bool  # whether sparse rows train faster as dense rows
    profile: Profile  # (rows, seconds) of each measured batch size

    def seconds(self, batch: int) -> float:
        """Estimated seconds of a batch of `batch` rows, from the nearest measured size."""
        rows, seconds = min(self.profile, key=lambda one: abs(one[0] - batch))
        return seconds if batch <= rows else seconds * batch / rows


def profile(trainer: Trainer, assignment: Assignment) -> MeasuredSpeeds:
    """Measure, or load cached measurements; configure `trainer` for the faster input format."""
    path = _path(trainer, assignment)
    measured = _load(path)
    if measured is None:
        densify = trainer.may_densify and _densifying_is_faster(trainer, assignment.train.rows)
        trainer.compute(densify=densify)
        measured = MeasuredSpeeds(densify, tuple(_measure_sizes(trainer, assignment.train.rows)))
        _save(path, measured)
        trainer.replica.reset()
    trainer.compute(densify=measured.densify)
    return measured


def _measure_sizes(trainer: Trainer, rows: int) -> Iterator[tuple[int, float]]:
    """Measure batches of doubling size; yields (rows, seconds)."""
    size, best, slow = min(MIN_BATCH, rows), 0.0, 0
    while slow < 2:
        try:
            seconds = trainer.seconds(size)
        except Exception as error:
            if size <= MIN_BATCH or not trainer.device.is_out_of_memory(error):
                raise
            trainer.release()
            return
        yield size, seconds
        slow = slow + 1 if size / seconds < MIN_SPEEDUP * best else 0
        best = max(best, size / seconds)
        if seconds > MAX_BATCH_SECONDS or size >= rows:
            return
        size = min(2 * size, rows)


def _densifying_is_faster(trainer: Trainer, rows: int) -> bool:
    """Return whether a batch trains faster when its sparse rows are converted to dense rows."""
    seconds = []
    for densify in (False, True):
        trainer.compute(densify=densify)
        try:
            seconds.append(trainer.seconds(min(DENSIFY_TEST_ROWS, rows)))
        except Exception as error:
            if not trainer.device.is_out_of_memory(error):
                raise
            trainer.release()
            seconds.append(float("inf"))
    return seconds[1] < seconds[0]


def _path(trainer: Trainer, assignment: Assignment) -> Path:
    """The cache file of measurements for this device, this network and similar data."""
    welcome, train = assignment.welcome, assignment.train
    stored = len(train.inputs.indices) / train.rows if train.sparse else train.features
    key = [
        *(version("hogbatch"), trainer.device.model, welcome.loss, welcome.optimizer.name),
        *(layer_to_file(layer) for layer in assignment.network.layers),
        *(trainer.may_densify, train.sparse, float(f"{stored:.1e}"), train.rows),
    ]
    name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:20]
    return cache_root() / "profiles" / f"{name}.json"


def _load(path: Path) -> MeasuredSpeeds | None:
    try:
        cached = json.loads(path.read_text())
        profile = tuple((int(rows), float(seconds)) for rows, seconds in cached["profile"])
        if profile and all(rows > 0 and 0 < seconds < math.inf for rows, seconds in profile):
            return MeasuredSpeeds(bool(cached["densify"]), profile)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, OverflowError) as error:
        logging.warning("%s is corrupt (%s): measuring again", path, error)
    return None


def _save(path: Path, measured: MeasuredSpeeds) -> None:
    content = json.dumps({"densify": measured.densify, "profile": measured.profile})
    partial = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(content)
        partial.replace(path)
    except OSError as error:  # not fatal: the next start measures again
        logging.warning("the device profile cannot be cached: %s", error)
