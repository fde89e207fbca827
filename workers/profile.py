"""Measures how fast a device trains a network, and caches the result."""

import hashlib
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hogbatch.config.layers import layer_to_file
from hogbatch.kernels.gpu.device import memory_shortage
from hogbatch.machine.cachedir import cache_root
from hogbatch.version import version
from hogbatch.workers import stored_profile
from hogbatch.workers.compute.assignment import Assignment
from hogbatch.workers.compute.device_profile import Profile
from hogbatch.workers.compute.measured_batches import MIN_BATCH, densifying_is_faster, measure_sizes
from hogbatch.workers.stored_profile import StoredProfile
from hogbatch.workers.trainer import Trainer


@dataclass(frozen=True, slots=True)
class MeasuredSpeeds:
    """Measured speeds of a network on a device."""

    densify: bool  # whether sparse rows train faster as dense rows
    profile: Profile  # (rows, seconds) of each measured batch size


def profile(trainer: Trainer, assignment: Assignment) -> MeasuredSpeeds:
    """Measure, or load cached measurements; configure `trainer` for the faster input format."""
    path = _path(trainer, assignment)
    measured = _load(path, trainer)
    if measured is None:
        measured = _measure(trainer, assignment.train.rows)
        device = trainer.device  # its state is read while its clocks are those of training
        circumstances = stored_profile.now(), device.model, device.state()
        stored_profile.save(path, StoredProfile(measured.densify, measured.profile, *circumstances))
    trainer.compute(densify=measured.densify)
    trainer.warm_up(measured.profile[0][0])  # so that a start with cached measurements is as fast
    trainer.replica.reset()
    return measured


def discard(trainer: Trainer, assignment: Assignment, measured: MeasuredSpeeds) -> None:
    """Remove the cached measurements, so that the next start measures again."""
    stored_profile.remove(_path(trainer, assignment), measured.profile)


def _load(path: Path, trainer: Trainer) -> MeasuredSpeeds | None:
    """Return the cached measurements; None if there are none, or they are outdated."""
    stored = stored_profile.load(path)
    if stored is None:
        return None
    driver = trainer.device.state().get("driver", "")
    if not stored.is_current(stored_profile.now(), driver):
        return None
    return MeasuredSpeeds(stored.densify, stored.profile)


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
        welcome.loss,
        welcome.optimizer.name,
        *(layer_to_file(layer) for layer in assignment.network.layers),
        trainer.may_densify,
        train.sparse,
        float(f"{stored:.1e}"),
        train.rows,
    ]
    name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:20]
    return cache_root() / "profiles" / f"{name}.json"
