"""The results of a run: model, summary, final message and exit code."""

import math
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from hogbatch.config.sets import SetName
from hogbatch.config.train import TrainConfig
from hogbatch.coordinator.commands import Finish
from hogbatch.data.facts import DataFacts
from hogbatch.data.source import ARRAYS
from hogbatch.errors import HogbatchError, NoWorkers, SaveError, UsageError
from hogbatch.events.event import Evaluation
from hogbatch.events.names import FOLDER, MODEL
from hogbatch.model.file import save_model
from hogbatch.model.network import Network
from hogbatch.model.trained import Model
from hogbatch.run.checkpoint import folder
from hogbatch.run.components import RunComponents
from hogbatch.run.saving import other_places, save_results
from hogbatch.store.scan import first_not_finite
from hogbatch.version import version
from hogbatch.views.console import figure, loss_of, readable


@dataclass(frozen=True)
class Run:
    """A finished training run.

    `metrics`, `checkpoint` and `path` are also attributes of the Result of Ray Train.
    """

    run_dir: Path | None  # None: the files of the run were not kept
    trained: Model | None = field(repr=False)  # None if no row was trained on
    summary: dict[str, Any] = field(repr=False)  # as in summary.json
    exit_code: int
    recipe: str  # "fast", "tabular" or "linear"
    hidden: tuple[int, ...]  # widths of the hidden layers
    label_transform: str = "auto"  # "none" or "log1p" if the labels are numbers
    number_values: str = "auto"  # "none" or "features" if short runs have decided

    @property
    def model(self) -> Model:
        """The kept model; UsageError if the run ended before any row was trained on."""
        if self.trained is None:
            where = "" if self.run_dir is None else f" in {self.run_dir}"
            raise UsageError(
                f"the run{where} ended before any row was trained on ({self.status}), so it has no "
                "model"
            )
        return self.trained

    @property
    def status(self) -> str:
        """One of "finished", "target", "time", "stopped", "failed"."""
        return str(self.summary["status"])

    @property
    def validation_loss(self) -> float | None:
        """Validation loss of `model`, per row; None without such rows."""
        return self._loss("validation")

    @property
    def test_loss(self) -> float | None:
        """Test loss of `model`, per row; None without a test set or a model, or not evaluated."""
        return self._loss("test")

    def _loss(self, name: SetName) -> float | None:
        result = self.summary[name]
        return None if result is None else float(result["loss"])

    @property
    def path(self) -> str | None:
        """The absolute path of the run directory, if there is one."""
        return None if self.run_dir is None else str(self.run_dir.absolute())

    @property
    def checkpoint(self) -> Path | None:
        """The newest checkpoint, a directory to `resume` from; None if there is none."""
        found = [] if self.run_dir is None else folder.paths(self.run_dir / FOLDER)
        return found[0] if found else None

    @property
    def metrics(self) -> dict[str, float]:
        """The results of `model`, with the progress and the last training loss of the run.

        The names are those of `Evaluation.metrics`, and `test_loss`, which is NaN if there is none,
        `test_accuracy` and so on.
        """
        summary, test = self.summary, self.summary["test"] or {"loss": math.nan, "values": {}}
        evaluation = Evaluation(
            seconds=summary["train_seconds"],
            epochs=summary["epochs"],
            rows=summary["rows"],
            train_loss=summary["train_loss"],
            validation_loss=self.validation_loss,
            validation_values=summary["validation"]["values"] if summary["validation"] else {},
        )
        tested = {f"test_{name}": value for name, value in test["values"].items()}
        return evaluation.metrics | {"test_loss": test["loss"]} | tested

    @property
    def metrics_history(self) -> list[dict[str, float]]:
        """The metrics of each evaluation, in order; `pandas.DataFrame` makes a table of them."""
        history = msgspec.convert(self.summary["history"], list[Evaluation])
        return [evaluation.metrics for evaluation in history]

    def save(self, path: str | Path) -> None:
        """Write the model file to `path`; SaveError if that fails, UsageError as for `model`."""
        save_model(self.model, path)


def build_model(
    config: TrainConfig,
    data: DataFacts,
    network: Network,
    params: NDArray[np.float32],
    marks: Mapping[str, object],
    threshold: float | None,
) -> Model:
    """Return the contents of the model file, with the parameters `params` [P] and `marks`."""
    columns = data.columns
    metadata = {
        "hogbatch": version(),
        "data": "arrays" if config.data == ARRAYS else config.data,
        "label": columns.label or "",
        **{name: str(value) for name, value in marks.items()},
    }
    if columns.position is not None:
        metadata["label_column"] = str(columns.position)
    if network.layers[-1].output_major:
        metadata["lsh"] = config.lsh
    return Model(
        network=network,
        tensors=network.from_stored(params),
        encoding=data.encoding,
        scaler=data.scaler,
        index_base=data.index_base,
        about=metadata,
        frequencies=data.label_frequencies,
        feature_names=columns.names or None,
        table=data.table,
        threshold=0.5 if threshold is None else threshold,
    )


def conclude(
    trained: Model | None, assessed: Callable[[], Run], finish: Finish, components: RunComponents
) -> Run:
    """Save the model and the summary, unless the files are not kept, and print the final line.

    `assessed` assesses the results and returns the run; it is called when the model is saved, and
    returns the same run if it is called again.

    Once the files are written, raises NoWorkers if no worker was left, and UsageError if there is
    no model or the model is not finite. Raises SaveError, with the run, if a file cannot be
    written.
    """
    recorder, config = components.recorder, components.setup.config
    failed = finish.status == "failed"
    model = None if failed and recorder.kept_params is None else trained
    finite = model is None or first_not_finite(recorder.params) is None
    directory = components.directory
    kept = failed or not directory.temporary
    try:
        if kept:
            save_results(
                directory,
                model if finite else None,
                lambda: assessed().summary,
                other_places(config.data),
                _print_error if config.quiet else components.console.say,
            )
    except SaveError as error:
        run = assessed()
        if failed and model is None:
            raise _failure(finish, f"no model was saved; {error}", run.checkpoint) from None
        unsaved = SaveError(f"{finish.reason}; {error}" if failed else str(error))
        unsaved.run = run
        raise unsaved from None
    run = assessed()
    which = "the model kept so far" if finish.model_lost else "the model"
    saved = f"{which} is in {directory.path / MODEL}" if kept else ""
    if model is None or not finite:
        saved = "no model was saved"
    if failed:
        raise _failure(finish, saved, run.checkpoint)
    if not finite:
        raise UsageError(f"training has diverged: the model is not finite; lower --lr; {saved}")
    untrained = " before any row was trained on" if model is None else ""
    if untrained and finish.status != "stopped":
        raise UsageError(f"the run ended ({run.status}){untrained}; {saved}; let it run longer")
    _print_conclusion(run, finish, components, untrained, saved)
    return run


def _print_conclusion(
    run: Run, finish: Finish, components: RunComponents, untrained: str, saved: str
) -> None:
    result = results_in_words(run.summary, components)
    reason = f" ({finish.reason})" if finish.status == "finished" and finish.reason else ""
    parts = "; ".join(filter(None, [result, saved]))
    components.console.say(f"{run.status}{untrained}{reason}: {parts}")
    if finish.status == "stopped":
        _print_error("; ".join(filter(None, [f"{finish.reason}{untrained}", saved])))


def _print_error(line: str) -> None:
    with suppress(OSError):  # the terminal may be closed
        print(f"hogbatch: {line}", file=sys.stderr)


def results_in_words(summary: Mapping[str, Any], components: RunComponents) -> str:
    """The results of the kept model: those that chose it, those on the test set, and a baseline."""
    loss, plan = loss_of(components.setup.started()), components.setup.plan
    results = []
    if summary["validation"]:
        results.append(f"validation {_result(summary['validation'], loss)}")
    elif summary["train_loss"] is not None:
        name, value = readable(loss, summary["train_loss"])
        results.append(f"training {name} {figure(value)}")
    if summary["test"]:
        results.append(f"test {_result(summary['test'], loss)}")
    elif components.recorder.tested is not None:
        results.append("the test loss is not finite")
    elif plan.test_rows and summary["rows"]:
        results.append("the test set was not evaluated")
    for baseline in list(components.recorder.baselines.values())[-1:]:
        metric, value = next(iter(baseline.values.items()), ("loss", baseline.loss))
        result = _result({"metric": metric, "value": value, "loss": baseline.loss}, loss)
        results.append(f"always predicting {baseline.prediction}: {result}")
    return "; ".join(results)


def _result(result: Mapping[str, Any], loss: str | None) -> str:
    metric = f"{result['metric']} {figure(result['value'])}"
    name, value = readable(loss, result["loss"])
    return metric if name == result["metric"] else f"{metric}, {name} {figure(value)}"


def _failure(finish: Finish, saved: str, checkpoint: Path | None) -> HogbatchError:
    """Return the error of a failed run; `saved` is a clause about its model."""
    if finish.diverged or finish.by_policy:
        return UsageError(f"{finish.reason}; {saved}")
    resume = ""
    if checkpoint is not None:
        resume = f"; continue with --resume {quote(str(checkpoint.parent.parent))}"
    return NoWorkers(f"{finish.reason}; {saved}{resume}")
