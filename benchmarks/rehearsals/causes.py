"""Suspected causes for which a method with all processors is slower than the better device alone.

Seconds to a target are rows to the target over rows per second. Both are compared, and the figures
of the run that could explain a difference are shown.
"""

from typing import Any

from hogbatch.config.train import TrainConfig
from hogbatch.policy.learning_rate import LearningRate
from hogbatch.run.defaults import scaling

Json = dict[str, Any]
TOLERANCE = 1.05  # smaller differences are not explained
MERGING = 0.15  # fraction of the time for merges that counts as a cause
IDLE = 0.8  # fraction of the time spent computing below which a device counts as idle


def cause(ours: Json, alone: Json, target: str) -> str:
    """One line for a table: the suspected cause, and the figures it is derived from.

    Empty if `ours` is not slower. Runs that did not reach the target are compared at their ends.
    """
    (our_seconds, our_rows), (seconds, rows) = _end(ours, target), _end(alone, target)
    if not (our_seconds and seconds and our_rows and rows):
        return ""
    missed = not ours["reached"][target]
    if not missed and our_seconds <= TOLERANCE * seconds:
        return ""
    pace, more_rows = (our_rows / our_seconds) / (rows / seconds), our_rows / rows
    found = []
    if missed or more_rows > TOLERANCE:
        sign = "> " if missed else ""
        found.append(f"{sign}{more_rows:.2g}x the rows ({_statistical(ours, alone)})")
    if pace < 1 / TOLERANCE:
        found.append(f"{pace:.2g}x the rows/s ({_hardware(ours)})")
    return "; ".join(found)


def _end(result: Json, target: str) -> tuple[float, float]:
    """(seconds, rows) at the target, or at the end of the run."""
    at = result["reached"][target]
    return (at["seconds"], at["rows"]) if at else (result["train_seconds"], result["rows"])


def _statistical(ours: Json, alone: Json) -> str:
    """What may explain more rows: staleness, shares of updates, batch sizes, learning rates."""
    cpu, gpu = ours["devices"]["cpu"], ours["devices"]["gpu"]
    parts = []
    if gpu and gpu["staleness"]:
        parts.append(f"staleness: {gpu['staleness']:.3g} updates during a GPU's merge interval")
    if cpu and cpu["threads"] > 1:
        parts.append(f"{cpu['threads']} CPU threads")
    if cpu and gpu:
        share_of_rows = cpu["rows"] / max(1, cpu["rows"] + gpu["rows"])
        parts.append(f"CPU: {cpu['share']:.0%} of updates, {share_of_rows:.0%} of rows")
    return ", ".join([*parts, *_batches(ours, alone)])


def _batches(ours: Json, alone: Json) -> list[str]:
    """The batch size and learning rate of each device, with those of the device alone."""
    found = []
    for device in ("cpu", "gpu"):
        used, single = ours["devices"][device], alone["devices"][device]
        if used and used["batch"]:
            batch, rate = used["batch"], rate_factor(used["batch"])
            text = f"{device.upper()} batch {batch} at rate x{rate:.2g}"
            other = single["batch"] if single else batch
            if other != batch:
                text += f" (alone {other} at x{rate_factor(other):.2g})"
            found.append(text)
    return found


def rate_factor(batch: int) -> float:
    """The factor by which the default settings scale the learning rate for a batch size."""
    config = TrainConfig(data="-")
    rule = scaling(config.optimizer)
    return LearningRate(1.0, rule, config.lr_batch, config.lr_cap).at(batch)


def _hardware(ours: Json) -> str:
    """What may explain fewer rows per second: merges, idle devices, or else slower computation."""
    parts = []
    for device in ("cpu", "gpu"):
        if used := ours["devices"][device]:
            if used["merging"] > MERGING:
                parts.append(f"merges take {used['merging']:.0%} of the {device.upper()}'s time")
            if used["busy"] < IDLE:
                parts.append(f"{device.upper()} busy {used['busy']:.0%}")
    return ", ".join(parts) or "no idle time or merge time on record: smaller batches are slower"
