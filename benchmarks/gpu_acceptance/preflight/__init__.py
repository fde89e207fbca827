"""Stage preflight: what the machine can do, before anything of hogbatch depends on it.

The most valuable measurements come first.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.gpu_acceptance.preflight import facts, lost_updates, segments, transfers
from benchmarks.gpu_acceptance.preflight.gpu import Gpu
from benchmarks.gpu_acceptance.stage import Stage

MEASUREMENTS: dict[str, Callable[[Gpu], Any]] = {
    "versions": facts.versions,
    "device": facts.device,
    "clocks and link": facts.clocks_and_link,
    "host": facts.host,
    "registered segment": segments.registered,
    "registered data segment": segments.data,
    "transfers": transfers.copies,
    "additions": transfers.additions,
    "lost updates": lost_updates.measure,
}


def run(stage: Stage) -> None:
    """Measure everything, also if something fails."""
    gpu = Gpu.build(stage.settings.quick)
    for name, work in MEASUREMENTS.items():
        stage.attempt(name, partial(work, gpu))
