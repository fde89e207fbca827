"""Training data given as arrays or data frames in Python, in place of files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from hogbatch.config.flags import dashed
from hogbatch.config.sets import SET_NAMES, SetName
from hogbatch.config.train import TrainConfig
from hogbatch.data.columns import find
from hogbatch.data.encode import Encoding
from hogbatch.data.facts import Fitted
from hogbatch.data.frames import table_of, without
from hogbatch.data.load import LoadedData, prepare
from hogbatch.data.memory import flat_rows, is_sparse, raw_set
from hogbatch.data.raw import RawSet
from hogbatch.data.source import ARRAYS
from hogbatch.data.table.given import later_set, training_set
from hogbatch.data.table.kinds import TableOptions
from hogbatch.data.table.rows import grouped_rows
from hogbatch.data.weights import ClassWeights, used_rows
from hogbatch.errors import UsageError
from hogbatch.model.trained import Model
from hogbatch.run.initial import initial_model
from hogbatch.run.resume import merge_settings
from hogbatch.run.setup import preparation
from hogbatch.views.console import Console

FILES_ONLY: Final = ("validation", "test", "label", "index_base", "header", "features", "bad_lines")


@dataclass(frozen=True, slots=True)
class GivenArrays:
    """The arrays of a training run; see `hogbatch.data.memory` for their forms."""

    X: Any  # [N, F]
    y: Any  # labels of N rows
    X_test: Any = None
    y_test: Any = None
    X_validation: Any = None
    y_validation: Any = None
    sample_weight: Any = None  # [N], or the name of a column of the frames
    weight_validation: Any = None  # of the held-out rows, if it is a column
    weight_test: Any = None
    class_weight: ClassWeights | None = None
    label: tuple[str, ...] = ()  # names of the labels, if they are columns of a frame
    encoding: Encoding | None = None  # of the labels; None: chosen from them
    model: Model | None = None  # that training continues from: rows and labels are encoded as by it
    part: bool = False  # columns with one value are used: they may vary in later rows

    def with_labels(self, names: Sequence[str]) -> "GivenArrays":
        """The same rows with the columns `names` of the frames as labels."""
        named: dict[str, Any] = {"label": tuple(map(str, names))}
        for suffix in ("", "_validation", "_test"):
            rows, labels = f"X{suffix}", f"y{suffix}"
            if getattr(self, labels) is not None:
                raise UsageError("expected `label`, the name of a column, or y; got both")
            if (frame := getattr(self, rows)) is not None:
                found = dict[str, Any]()
                for name in names:
                    frame, found[name] = without(frame, name, rows)
                named[rows], named[labels] = frame, found if len(found) > 1 else found[names[0]]
        return replace(self, **named)

    def with_weights(self, name: str) -> "GivenArrays":
        """The same rows with the column `name` of the frames as weights."""
        named: dict[str, Any] = {}
        for rows, weights in (
            ("X", "sample_weight"),
            ("X_validation", "weight_validation"),
            ("X_test", "weight_test"),
        ):
            if getattr(self, rows) is not None:
                named[rows], named[weights] = without(getattr(self, rows), name, rows)
        return replace(self, **named)

    def load(self, config: TrainConfig, console: Console) -> LoadedData:
        """Check, split and scale the rows; print notes about them. UsageError or DataError."""
        given: dict[SetName, tuple[Any, Any]] = {
            "validation": (self.X_validation, self.y_validation),
            "test": (self.X_test, self.y_test),
        }
        for name, (X, y) in given.items():
            if X is None and y is not None:
                raise UsageError(f"y_{name} needs X_{name}, the rows with these labels")

        def read(name: SetName, fitted: Fitted) -> RawSet:
            known = fitted.table, fitted.features
            weights, shape = getattr(self, f"weight_{name}"), getattr(self.X, "shape", ())[1:]
            X, y = given[name]
            rows = flat_rows(X, shape if len(shape) > 1 else ())
            return later_set(rows, y, *known, weights=weights, suffix=f"_{name}").labelled()

        model = self.model or initial_model(config)
        settings = preparation(config, model)
        settings |= {"class_weight": self.class_weight} if self.class_weight else {}
        data = prepare(
            self._grouped(self._rows(config, model), config).labelled(),
            {name: partial(read, name) for name, (X, _) in given.items() if X is not None},
            encoding=self.encoding,
            drop_constant=not self.part,
            **settings,
        )
        for note in data.notes:
            console.say(note)
        return data

    def _grouped(self, raw: RawSet, config: TrainConfig) -> RawSet:
        """The rows `raw`, which are those of weight above 0, with their groups or times in X."""
        name = config.group or config.time
        if name is None:
            return raw
        table = table_of(self.X, lambda form: [find(form, name, "")], "X")
        groups = grouped_rows(table, config.group, config.time)
        kept, _ = used_rows(self.sample_weight, table.rows)
        assert groups is not None
        return replace(raw, groups=groups if kept is None else groups.of_rows(kept))

    def _rows(self, config: TrainConfig, model: Model | None) -> RawSet:
        """The training rows: a table that is not yet encoded, a matrix, or rows as of `model`."""
        if model is not None:
            return later_set(
                flat_rows(self.X),
                self.y,
                model.table,
                model.network.features,
                names=model.columns.names,
                weights=self.sample_weight,
            )
        columns = (config.drop, config.categorical, config.numeric, config.text)
        options = TableOptions(
            *columns,
            config.decimal,
            constant=self.part,
            group=config.group,
            sequence=config.sequence,
        )
        if config.layers and not config.sequence:
            raw = raw_set(flat_rows(self.X), self.y, self.sample_weight)
            return replace(raw, shape=getattr(self.X, "shape", ())[1:])
        if not is_sparse(self.X):
            return training_set(self.X, self.y, self.sample_weight, options, label_names=self.label)
        if options.given:
            raise UsageError(
                "drop, categorical, numeric and text name columns of a table; X is a sparse matrix"
            )
        return raw_set(self.X, self.y, self.sample_weight)


def settings_for_arrays(settings: Mapping[str, Any]) -> TrainConfig:
    """The configuration of a run on arrays; UsageError for settings of files."""
    values = {"data": ARRAYS, **settings}
    config, default = merge_settings(values), TrainConfig()
    for name in FILES_ONLY:
        if getattr(config, name) != getattr(default, name):
            instead = f"; give X_{name} and y_{name}" if name in SET_NAMES else ""
            raise UsageError(f"{dashed(name)} applies to files; these data are arrays{instead}")
    return config
