"""A recorded run: its settings, its data, its records and its evaluations."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hogbatch.checkpoint.names import CONFIG, EVENTS
from hogbatch.config.sources import merge_sources
from hogbatch.config.train import TrainConfig
from hogbatch.coordinator.plan import Plan
from hogbatch.data.load import LoadedData
from hogbatch.errors import DataError, UsageError
from hogbatch.model.footprint import expect_memory
from hogbatch.model.network import Network
from hogbatch.run.planning import memory_for, network_for, plan_for
from hogbatch.run.resume import identity_of
from hogbatch.run.setup import load_data
from hogbatch.store import quarantine
from hogbatch.telemetry.console import Console
from hogbatch.telemetry.update_log import UpdateFile, files_without_header, read_folder


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run that can be replayed."""

    run_dir: Path
    config: TrainConfig
    data: LoadedData
    network: Network
    plan: Plan
    files: Sequence[UpdateFile]  # that of the coordinator first
    evaluations: Sequence[Mapping[str, Any]]  # events, in the order of the record
    quarantined: Sequence[int]  # rows of the training set, in the order of their quarantine
    resumed: bool  # the run was continued later, which is not recorded
    without_header: Sequence[Path]  # files of workers that were killed before their first record


def open_run(run_dir: Path, console: Console) -> RecordedRun:
    """Read the record of the run in `run_dir`, and its data again.

    UsageError if it has no record or its data have changed, DataError if a file is damaged.
    """
    if not run_dir.is_dir():
        raise UsageError(f"{run_dir} is not a run directory")
    files = read_folder(run_dir)
    config = replace(merge_sources({}, run_dir / CONFIG), resume=None, run_dir=None)
    if config.data == "-" or config.test == "-":
        raise UsageError(
            f"the run in {run_dir} read its data from standard input, which cannot be read again"
        )
    data = load_data(config, console)
    network = network_for(config, data)
    _check_identity(run_dir, files[0].header.identity, identity_of(config, data, network))
    plan = plan_for(config, data, network, files[0].header.run)
    expect_memory(memory_for(config, data, network, plan, ()), "this replay")
    events = _json_lines(run_dir / EVENTS)
    resumed = any(event.get("event") == "resumed" for event in events)
    evaluations = [event for event in events if event.get("event") == "evaluation"]
    bad_leases = _json_lines(run_dir / quarantine.NAME)
    quarantined = [row for lease in bad_leases for row in lease["rows"]]
    return RecordedRun(
        *(run_dir, config, data, network, plan, files, evaluations, quarantined, resumed),
        files_without_header(run_dir),
    )


def _check_identity(
    run_dir: Path, recorded: Mapping[str, str | int], now: Mapping[str, str | int]
) -> None:
    """UsageError if the data, network, loss, optimizer or seed differ from the recorded ones."""
    for key, value in now.items():
        if recorded.get(key) != value:
            raise UsageError(
                f"the run in {run_dir} cannot be replayed: its {key} was {recorded.get(key)!r}, "
                f"but now it is {value!r}; a replay needs the same data and the same config.toml"
            )


def _json_lines(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a file of JSON objects; none if there is no such file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot read the events of the run: {error}") from None
