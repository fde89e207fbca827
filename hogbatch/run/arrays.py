"""Training data given as arrays in Python, in place of files."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hogbatch.config.flags import dashed
from hogbatch.config.sources import merge_sources
from hogbatch.config.train import TrainConfig
from hogbatch.data.load import LoadedData, prepare
from hogbatch.data.memory import raw_set
from hogbatch.data.source import ARRAYS
from hogbatch.errors import UsageError
from hogbatch.run.resume import settings_file
from hogbatch.telemetry.console import Console

FILES_ONLY: Final = ("test", "label", "index_base", "header", "features", "bad_lines")


@dataclass(frozen=True, slots=True)
class GivenArrays:
    """The arrays of a training run; see `hogbatch.data.memory` for their forms."""

    X: Any  # [N, F]
    y: Any  # labels of N rows
    X_test: Any = None
    y_test: Any = None
    sample_weight: Any = None  # [N]

    def load(self, config: TrainConfig, console: Console) -> LoadedData:
        """Check, split and scale the rows; print notes about them. UsageError or DataError."""
        raw = raw_set(self.X, self.y, self.sample_weight)
        other = None
        if self.X_test is not None:
            other = raw_set(self.X_test, self.y_test, suffix="_test", known=raw.columns.names)
            if other.features != raw.features:
                raise UsageError(
                    f"X_test: expected {raw.features} features, as in X; got {other.features}"
                )
        elif self.y_test is not None:
            raise UsageError("y_test needs X_test, the rows with these labels")
        data = prepare(
            raw,
            other,
            test_fraction=config.test_fraction,
            loss=config.loss,
            scale=config.scale,
            seed=config.seed,
        )
        for note in data.notes:
            console.say(note)
        return data


def settings_for_arrays(settings: Mapping[str, Any]) -> TrainConfig:
    """The configuration of a run on arrays; UsageError for settings of files."""
    given = {"data": ARRAYS, **settings}
    config, default = merge_sources(given, settings_file(given)), TrainConfig()
    for name in FILES_ONLY:
        if getattr(config, name) != getattr(default, name):
            instead = "; give X_test and y_test" if name == "test" else ""
            raise UsageError(f"{dashed(name)} applies to files; these data are arrays{instead}")
    return config
