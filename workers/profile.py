"""How fast a device trains a network, measured once and kept."""

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

SMALLEST_MEASURED = 16  # rows; the ladder doubles from here
LONGEST_MEASURED_S = 0.25  # a batch that takes longer ends the ladder
GAIN = 1.02  # and so does doubling that speeds rows up by less, twice in a row
TRIED_WITH = 1024  # rows of the batch by which sparse and written-out rows are compared


@dataclass(frozen=True, slots=True)
class Measured:
    """What is worth remembering of a device and a network."""

    densify: bool  # sparse rows train faster when they are written out
    profile: Profile  # rows and seconds of a batch

    def seconds(self, batch: int) -> float:
        """Of a batch of `batch` rows, from the nearest that was measured."""
        rows, seconds = min(self.profile, key=lambda one: abs(one[0] - batch))
        return seconds if batch <= rows else seconds * batch / rows


def profile(trainer: Trainer, assignment: Assignment) -> Measured:
    """Measure, or recall what was measured before; `trainer` then computes the faster way."""
    path = _path(trainer, assignment)
    measured = _recall(path)
    if measured is None:
        densify = trainer.may_densify and _densifying_pays(trainer, assignment.train.rows)
        trainer.compute(densify=densify)
        measured = Measured(densify, tuple(_ladder(trainer, assignment.train.rows)))
        _remember(path, measured)
        trainer.replica.forget()
    trainer.compute(densify=measured.densify)
    return measured


def _ladder(trainer: Trainer, rows: int) -> Iterator[tuple[int, float]]:
    """Rows and seconds of batches of doubling size."""
    size, best, slow = min(SMALLEST_MEASURED, rows), 0.0, 0
    while slow < 2:
        try:
            seconds = trainer.seconds(size)
        except trainer.device.out_of_memory:
            trainer.release()
            if size <= SMALLEST_MEASURED:
                raise
            return
        yield size, seconds
        slow = slow + 1 if size / seconds < GAIN * best else 0
        best = max(best, size / seconds)
        if seconds > LONGEST_MEASURED_S or size >= rows:
            return
        size = min(2 * size, rows)


def _densifying_pays(trainer: Trainer, rows: int) -> bool:
    """Whether a batch is faster when its sparse rows are written out."""
    seconds = []
    for densify in (False, True):
        trainer.compute(densify=densify)
        try:
            seconds.append(trainer.seconds(min(TRIED_WITH, rows)))
        except trainer.device.out_of_memory:
            trainer.release()
            seconds.append(float("inf"))
    return seconds[1] < seconds[0]


def _path(trainer: Trainer, assignment: Assignment) -> Path:
    """Where the measurements of this device with this network and data like these are kept."""
    welcome, train = assignment.welcome, assignment.train
    stored = len(train.inputs.indices) / train.rows if train.sparse else train.features
    about = [
        *(version("hogbatch"), trainer.device.model, welcome.loss, welcome.optimizer.name),
        *(layer_to_file(layer) for layer in assignment.network.layers),
        *(trainer.may_densify, train.sparse, float(f"{stored:.1e}"), train.rows),
    ]
    name = hashlib.sha256(json.dumps(about).encode()).hexdigest()[:20]
    return cache_root() / "profiles" / f"{name}.json"


def _recall(path: Path) -> Measured | None:
    try:
        kept = json.loads(path.read_text())
        profile = tuple((int(rows), float(seconds)) for rows, seconds in kept["profile"])
        if profile and all(rows > 0 and 0 < seconds < math.inf for rows, seconds in profile):
            return Measured(bool(kept["densify"]), profile)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, OverflowError) as error:
        logging.warning("%s is not as it was written (%s): measuring again", path, error)
    return None


def _remember(path: Path, measured: Measured) -> None:
    content = json.dumps({"densify": measured.densify, "profile": measured.profile})
    partial = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(content)
        partial.replace(path)
    except OSError as error:  # it is only slower the next time
        logging.warning("the device's profile cannot be kept: %s", error)
