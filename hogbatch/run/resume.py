"""What a checkpoint says of its run, which one a run goes on from, and whether it may."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from hogbatch.checkpoint import folder
from hogbatch.checkpoint.folder import Checkpoint
from hogbatch.checkpoint.rundir import CONFIG, FOLDER, located
from hogbatch.checkpoint.tensors import Arrays
from hogbatch.config.train import TrainConfig
from hogbatch.coordinator.saved import Saved
from hogbatch.data.load import LoadedData
from hogbatch.errors import DataError, UsageError
from hogbatch.model.network import Network
from hogbatch.store.quarantine import QuarantinedRows
from hogbatch.telemetry.journal import Journal
from hogbatch.telemetry.records import Evaluation

AUTO: Final = "auto"


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where a run goes on from."""

    run_dir: Path
    checkpoint: Checkpoint
    bad: list[str]  # sentences about newer checkpoints that cannot be read
    saved: Saved
    history: list[Evaluation]
    kept: Evaluation | None

    def check(self, identity: Mapping[str, object]) -> None:
        """UsageError if data, network, optimizer or seed are others than they were."""
        before = self.checkpoint.description["identity"]
        for what, now in identity.items():
            if before.get(what) != now:
                raise UsageError(
                    f"{self.checkpoint.path} cannot be resumed: its {what} is "
                    f"{before.get(what)!r}, this run's {now!r}; give the same, or start a new run "
                    "without --resume"
                )


def identity(config: TrainConfig, loaded: LoadedData, network: Network) -> dict[str, object]:
    """What a checkpoint and a run that goes on from it must have in common."""
    train = loaded.train
    return {
        "data": f"{train.rows} rows of {train.features} features ({loaded.fingerprint})",
        "network": f"{network.widths} {network.layers[0].activation}",
        "output": "by neuron" if network.layers[-1].output_major else "dense",
        "loss": network.loss,
        "optimizer": config.optimizer,
        "seed": config.seed,
    }


def describe(
    identity: Mapping[str, object], config: str, journal: Journal, quarantined: QuarantinedRows
) -> tuple[dict[str, Any], Arrays]:
    """What a checkpoint holds beside the model and the coordinator's state."""
    arrays: Arrays = {"quarantined": np.array(quarantined.rows, np.int64)}
    if journal.kept_params is not None:
        arrays["kept"] = journal.kept_params
    description = {
        "hogbatch": version("hogbatch"),
        "identity": dict(identity),
        "config": config,
        "history": [asdict(evaluation) for evaluation in journal.history],
        "kept": None if journal.kept is None else asdict(journal.kept),
    }
    return description, arrays


def origin_dir(resume: str, run_dir: Path | None) -> Path | None:
    """The run directory that `--resume` means, with `--run-dir`; None if that is a new one."""
    if resume == AUTO:
        return run_dir
    path = Path(resume)
    if path.parent.name == FOLDER:
        return path.parent.parent
    return path.parent if path.name == FOLDER else path


def expect_checkpoints(resume: str) -> None:
    """DataError if `resume` names a place without checkpoints; before anything is changed there."""
    origin = _named(resume)
    if origin is not None and not (checkpoints := located(origin, FOLDER)).is_dir():
        raise _no_checkpoint(checkpoints)


def settings_of(given: Mapping[str, object]) -> Path | None:
    """The file with the settings of the run that those `given` resume, if there is one.

    DataError if the run directory to resume does not exist.
    """
    resume, run_dir = given.get("resume"), given.get("run_dir")
    if resume is None:
        return None
    origin = _named(str(resume))
    if origin is None:
        origin = None if run_dir is None else Path(str(run_dir))
    file = None if origin is None else located(origin, CONFIG)
    return file if file is not None and file.is_file() else None


def _named(resume: str) -> Path | None:
    """The run directory that `resume` names, which must exist; None if it is "auto"."""
    if resume == AUTO:
        return None
    origin = origin_dir(resume, None)
    if origin is None or not origin.is_dir():
        problem = "is not a directory" if Path(resume).exists() else "does not exist"
        raise DataError(
            f"--resume {resume} {problem}; expected a run directory or one of its checkpoints"
        )
    return origin


def _no_checkpoint(checkpoints: Path) -> DataError:
    return DataError(
        f"there is no checkpoint in {checkpoints}; give a run directory that has one, or start a "
        "new run without --resume"
    )


def find(resume: str, run_dir: Path) -> ResumePoint | None:
    """The checkpoint to go on from: the newest good one of `run_dir`, or the very one of `resume`.

    None if `resume` is "auto" and there are no checkpoints at all. DataError if there are some and
    none is good, or if there are none in a place that was named.
    """
    path, checkpoints = Path(resume), located(run_dir, FOLDER)
    if resume != AUTO and path.parent.name == FOLDER:
        return _origin(run_dir, folder.read(checkpoints / path.name), [])
    checkpoint, bad = folder.newest_intact(checkpoints)
    if checkpoint is not None:
        return _origin(run_dir, checkpoint, bad)
    if bad:
        raise DataError(f"no checkpoint in {checkpoints} is good: {'; '.join(bad)}")
    if resume != AUTO:
        raise _no_checkpoint(checkpoints)
    return None


def _origin(run_dir: Path, checkpoint: Checkpoint, bad: list[str]) -> ResumePoint:
    description: Mapping[str, Any] = checkpoint.description
    try:
        return ResumePoint(
            run_dir,
            checkpoint,
            bad,
            msgspec.convert(description["state"], Saved),
            msgspec.convert(description["history"], list[Evaluation]),
            msgspec.convert(description["kept"], Evaluation | None),
        )
    except (KeyError, msgspec.ValidationError) as error:
        raise DataError(
            f"{checkpoint.path}: its description is of another version of hogbatch: {error!r}"
        ) from None
