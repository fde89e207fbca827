"""Measures how fast a device trains a network, and caches the result."""

import hashlib
import json
import logging
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import msgspec

from hogbatch.config.layers import layer_to_file
from hogbatch.kernels.gpu.device import memory_shortage
from hogbatch.machine.cachedir import cache_root, make_directory
from hogbatch.machine.files import replace_file
from hogbatch.machine.linux import nvidia_driver
from hogbatch.policy.limits import largest_gpu_batch, useful_limits
from hogbatch.version import version
from hogbatch.workers.compute.assignment import Assignment
from hogbatch.workers.compute.measured_batches import MIN_BATCH, densifying_is_faster, measure_sizes
from hogbatch.workers.trainer import Trainer

MAX_AGE_S: Final = 30 * 24 * 3600.0  # of cached measurements

Rows = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class MeasuredSpeeds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measured speeds of a network on a device."""

    densify: bool  # whether sparse rows train faster as dense rows
    profile: Annotated[tuple[tuple[Rows, Seconds], ...], msgspec.Meta(min_length=1)]  # by size


def profile(trainer: Trainer, assignment: Assignment) -> MeasuredSpeeds:
    """Measure, or load cached measurements; configure `trainer` for the faster input format."""
    path = _path(trainer, assignment)
    measured = _load(path)
    if measured is None:
        measured = _measure(trainer, assignment.train.rows)
        _save(path, measured)
    trainer.compute(densify=measured.densify)
    if trainer.device.warm_up_seconds > 0:  # a GPU
        _prepare(trainer, measured, assignment.train.rows)
    trainer.replica.reset()
    return measured


def _prepare(trainer: Trainer, measured: MeasuredSpeeds, rows: int) -> None:
    """Prepare for the largest useful batch, so that the first lease is as fast as later ones."""
    _, batch = useful_limits(measured.profile, largest=largest_gpu_batch(rows))
    if memory_shortage(trainer.device, partial(trainer.prepare, batch)) is not None:
        trainer.release()  # other programs may use more memory than when it was measured


def _load(path: Path) -> MeasuredSpeeds | None:
    """Return the cached measurements; None if there are none, or they are old or corrupt."""
    try:
        age = time.time() - path.stat().st_mtime
        if not 0.0 <= age <= MAX_AGE_S:
            return None
        return msgspec.json.decode(path.read_bytes(), type=MeasuredSpeeds)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        logging.warning("%s is corrupt (%s): measuring again", path, error)
        return None


def _save(path: Path, measured: MeasuredSpeeds) -> None:
    """Cache the speeds; a failure is only logged, because the next start can measure again."""
    try:
        make_directory(path.parent)
        replace_file(path, [msgspec.json.encode(measured)])
    except OSError as error:
        logging.warning("the device profile cannot be cached: %s", error)


def _measure(trainer: Trainer, rows: int) -> MeasuredSpeeds:
    """Measure the input format and then the batch sizes; `trainer` then uses the faster format."""

    def seconds_of(batch: int, densify: bool) -> float | None:
        trainer.compute(densify=densify)
        return _seconds_if_it_fits(trainer, batch)

    densify = trainer.may_densify and densifying_is_faster(seconds_of, rows)
    trainer.compute(densify=densify)
    return MeasuredSpeeds(densify, tuple(measure_sizes(partial(_seconds, trainer), rows)))


def _seconds(trainer: Trainer, batch: int) -> float | None:
    """Return the seconds of a batch; None if it does not fit into memory. MIN_BATCH rows must."""
    return trainer.seconds(batch) if batch <= MIN_BATCH else _seconds_if_it_fits(trainer, batch)


def _seconds_if_it_fits(trainer: Trainer, batch: int) -> float | None:
    """Return the seconds of a batch; None if it does not fit into memory, which is then freed."""
    seconds: list[float] = []
    shortage = memory_shortage(trainer.device, lambda: seconds.append(trainer.seconds(batch)))
    if shortage is not None:
        trainer.release()
        return None
    return seconds[0]


def _path(trainer: Trainer, assignment: Assignment) -> Path:
    """The cache file of measurements for this device, this network and similar data."""
    welcome, train = assignment.welcome, assignment.train
    stored = len(train.inputs.indices) / train.rows if train.sparse else train.features
    key = [
        version(),
        trainer.device.model,
        nvidia_driver(),
        welcome.loss,
        welcome.optimizer.name,
        *(layer_to_file(layer) for layer in assignment.network.layers),
        str(assignment.network.backbone),
        trainer.may_densify,
        train.sparse,
        float(f"{stored:.1e}"),
        train.rows,
    ]
    name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:20]
    return cache_root() / "profiles" / f"{name}.json"
