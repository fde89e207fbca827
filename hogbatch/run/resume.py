"""Resuming a run: selection, contents and compatibility of the checkpoint."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from hogbatch.config.effect import without_policy, without_servers
from hogbatch.config.flags import Group, dashed
from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.config.sources import merge_sources, to_toml
from hogbatch.config.train import FLAGS, TrainConfig
from hogbatch.coordinator.saved_state import SavedState
from hogbatch.data.facts import DataFacts
from hogbatch.data.schema import MAX_INT, convert, expect, within
from hogbatch.errors import DataError, UsageError
from hogbatch.events.event import Evaluation
from hogbatch.events.names import CONFIG, FOLDER
from hogbatch.events.recorder import RunRecorder
from hogbatch.model.network import Network
from hogbatch.model.tensors import Arrays
from hogbatch.run.checkpoint import folder
from hogbatch.run.checkpoint.folder import Checkpoint
from hogbatch.store.model import SharedModel
from hogbatch.store.quarantine import QuarantinedRows
from hogbatch.store.scan import first_not_finite
from hogbatch.version import version
from hogbatch.wire.address import expect_private

AUTO: Final = "auto"


@dataclass(frozen=True, slots=True)
class Description:
    """The description of a checkpoint, as far as it is used; see `describe_checkpoint`."""

    identity: dict[str, str | int]
    state: SavedState
    history: list[Evaluation]
    kept: Evaluation | None  # of the kept model
    config: str = ""  # settings, as TOML
    threshold: Annotated[float, Meta(gt=0, lt=1)] | None = None  # of the kept model, if chosen
    temperature: Annotated[float, Meta(gt=0)] | None = None  # the same

    def validate(self) -> None:
        """ValueError if it contradicts itself, which no description does that was saved."""
        self.state.validate()
        tomllib.loads(self.config)
        kept = self.kept
        expect(
            kept is None or (kept.validation_loss is None) == (not kept.validation_values),
            "kept: expected a validation loss and metrics, or neither",
        )


@dataclass(frozen=True, slots=True)
class SavedArrays(SharedModel):
    """The arrays of a checkpoint: those of the model, and as in `describe_checkpoint`."""

    quarantined: NDArray[np.int64]
    kept: NDArray[np.float32] | None = None

    def validate(self) -> None:
        """ValueError for numbers that are not those of a model."""
        for name in ("params", "first", "second"):
            finite = first_not_finite(getattr(self, name)) is None
            expect(finite, f"tensor {name}: expected finite numbers")
        for name in ("steps", "merges"):
            expect(within(getattr(self, name), 0, MAX_INT), f"tensor {name}: expected a count")


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """A checkpoint to resume from, with the state of its run."""

    run_dir: Path
    checkpoint: Checkpoint
    unusable: list[str]  # one sentence about each newer checkpoint that cannot be used
    described: Description

    def check(
        self, identity: Mapping[str, object], config: TrainConfig, network: Network, rows: int
    ) -> None:
        """UsageError if the data, the network or a setting of `identity` differs.

        DataError if it does not fit the `network`, the optimizer and the training `rows`.
        """
        for key, value in identity.items():
            was: object = self.described.identity.get(key, value)  # unknown to earlier versions
            if was != value:
                if key == "data":
                    before = tomllib.loads(self.described.config)
                    key, was, value = _changed_setting(before, config) or (key, was, value)
                raise UsageError(
                    f"{self.checkpoint.path} cannot be resumed: its {key} is {was!r}, but this "
                    f"run's is {value!r}; use the same {key}, or start a new run without --resume"
                )
        try:
            self._expect_fit(network.parameters, OPTIMIZERS[config.optimizer].slots, rows)
        except ValueError as error:
            raise DataError(
                f"{self.checkpoint.path} is not valid: {error}; resume from an earlier checkpoint"
            ) from None

    def _expect_fit(self, parameters: int, slots: int, rows: int) -> None:
        arrays, state = self.checkpoint.arrays, self.described.state
        fields = SharedModel.fields(parameters, slots)
        shapes = {name.removeprefix("model/"): shape for name, (_, shape) in fields.items()}
        for name, shape in {**shapes, "kept": (parameters,)}.items():
            if name in arrays:
                got = arrays[name].shape
                expect(got == shape, f"tensor {name}: expected {[*shape]} cells; got {[*got]}")
        quarantined = arrays["quarantined"]
        distinct = len(np.unique(quarantined)) == len(quarantined) <= state.quarantined
        expect(
            distinct and within(quarantined, 0, rows - 1),
            f"tensor quarantined: expected at most {state.quarantined} of {rows} rows",
        )
        for name in ("epoch_rows", "quarantined"):
            found = getattr(state, name)
            expect(found <= rows, f"{name}: expected at most {rows} rows; got {found}")


def _changed_setting(
    before: Mapping[str, Any], config: TrainConfig
) -> tuple[str, object, object] | None:
    """The first setting by which `config` reads or splits data in another way, and its values."""
    now = tomllib.loads(to_toml(config))
    for name, flag in FLAGS.items():
        key = dashed(name)
        if flag.group is Group.DATA and name != "data_cache" and before.get(key) != now.get(key):
            return key, before.get(key), now.get(key)
    return None


def identity_of(config: TrainConfig, data: DataFacts, network: Network) -> dict[str, str | int]:
    """Return the properties that a checkpoint and a run that resumes it must share.

    The data come after the settings on which they depend, and before what depends on them.
    """
    train = data.train_sizes
    return {
        "seed": config.seed,
        "optimizer": config.optimizer,
        "loss": network.loss,
        "data": f"{train.rows} rows of {train.features} features ({data.fingerprint})",
        "network": f"{network.widths} {network.layers[0].activation}",
        "augment": config.augment,
        "output": "output-major" if network.output_major else "dense",
    }


def describe_checkpoint(
    identity: Mapping[str, object],
    settings: str,
    recorder: RunRecorder,
    quarantined: QuarantinedRows,
) -> tuple[dict[str, Any], Arrays]:
    """Return the contents of a checkpoint besides the model and the coordinator's state.

    The first result is stored as JSON, the second as arrays.
    """
    arrays: Arrays = {"quarantined": np.array(quarantined.rows, np.int64)}
    if recorder.kept_params is not None:
        arrays["kept"] = recorder.kept_params
    description = {
        "hogbatch": version(),
        "identity": dict(identity),
        "config": settings,
        "history": [evaluation.fields for evaluation in recorder.history],
        "kept": recorder.kept and recorder.kept.fields,
        "threshold": recorder.threshold,
        "temperature": recorder.temperature,
    }
    return description, arrays


def resumed_dir(resume: str) -> Path:
    """Return the run directory that --resume names, unless that is "auto"."""
    path = Path(resume)
    if path.parent.name == FOLDER:
        return path.parent.parent
    return path.parent if path.name == FOLDER else path


def expect_checkpoints(resume: str) -> None:
    """DataError if `resume` names a directory without checkpoints; does not change anything."""
    directory = _named_dir(resume)
    if directory is not None and not (checkpoints := directory / FOLDER).is_dir():
        raise _no_checkpoint(checkpoints)


def merge_settings(flags: Mapping[str, object], file: Path | None = None) -> TrainConfig:
    """Merge `flags` with `file`, or else with the settings of the run that they resume.

    Settings of that run which have no effect together with `flags` get their defaults, so that it
    can be continued with another policy, or on several servers instead of one and the reverse.

    UsageError if only the resumed run names a policy module:Class: it would be imported, so the
    user has to name it.
    """
    resumed = None if file else settings_file(flags)
    config = merge_sources(flags, file or resumed)
    if resumed is None:
        return config
    if ":" in config.policy and flags.get("policy") is None:
        raise UsageError(
            f"{resumed} has the policy {config.policy}, whose module is imported only if you name "
            f"it: give --policy {config.policy} or another one"
        )
    unused = without_policy(config) | without_servers(config)
    unused.pop("data_copies", None)  # it chooses the rows of an epoch: another run
    usual = TrainConfig()
    defaults = {name: getattr(usual, name) for name in unused if flags.get(name) is None}
    return replace(config, **defaults)


def settings_file(flags: Mapping[str, object]) -> Path | None:
    """Return the file with the settings of the run that `flags` resume, if any.

    DataError if the run directory to resume does not exist, UsageError if it is not private.
    """
    resume, run_dir = flags.get("resume"), flags.get("run_dir")
    if resume is None:
        return None
    directory = _named_dir(str(resume))
    if directory is None and run_dir is not None:
        directory = Path(os.path.expanduser(str(run_dir)))
    if directory is None or not (file := directory / CONFIG).is_file():
        return None
    expect_private(directory, directory.stat())
    return file


def _named_dir(resume: str) -> Path | None:
    """Return the run directory that `resume` names, which must exist; None for "auto"."""
    if resume == AUTO:
        return None
    directory = resumed_dir(os.path.expanduser(resume))
    if not directory.is_dir():
        problem = "is not a directory" if Path(resume).exists() else "does not exist"
        raise DataError(
            f"--resume {resume} {problem}; expected a run directory or one of its checkpoints"
        )
    return directory


def _no_checkpoint(checkpoints: Path) -> DataError:
    return DataError(
        f"there is no checkpoint in {checkpoints}; give a run directory with a checkpoint, or "
        "start a new run without --resume"
    )


def find_resume_point(resume: str, run_dir: Path) -> ResumePoint | None:
    """Return the checkpoint named by `resume`, or the newest usable one of `run_dir`.

    Returns None if `resume` is "auto" and there is no checkpoint. Raises DataError if all
    checkpoints are unusable, or if `resume` names a directory without checkpoints.
    """
    path, run_dir = Path(resume), run_dir if resume == AUTO else resumed_dir(resume)
    checkpoints = run_dir / FOLDER
    if path.parent.name == FOLDER:
        checkpoint, unusable = folder.read(checkpoints / path.name), list[str]()
        return ResumePoint(run_dir, checkpoint, unusable, _described(checkpoint))
    newest, unusable = folder.newest_intact(checkpoints, check=_described)
    if newest is not None:
        return ResumePoint(run_dir, newest, unusable, _described(newest))
    if unusable:
        raise DataError(f"no checkpoint in {checkpoints} is usable: {'; '.join(unusable)}")
    if resume != AUTO:
        raise _no_checkpoint(checkpoints)
    return None


def _described(checkpoint: Checkpoint) -> Description:
    """The description of a checkpoint; DataError if the run cannot continue from it."""
    try:
        described = msgspec.convert(checkpoint.description, Description)
        described.validate()
        convert(checkpoint.arrays, SavedArrays, "tensors").validate()
    except (ValueError, msgspec.ValidationError) as error:
        raise DataError(f"{checkpoint.path}: not valid for this version: {error}") from None
    return described
