"""A run of MLflow, on a tracking server or in a local database."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException

from hogbatch.checkpoint.files import replace_file
from hogbatch.checkpoint.names import MLFLOW_RUN
from hogbatch.trackers.base import Point, RunDescription, RunResult
from hogbatch.trackers.credentials import without_credentials
from hogbatch.trackers.names import mlflow_name

DATABASE: Final = "mlflow.db"  # beside the run directory, if there is no MLFLOW_TRACKING_URI
ARTIFACTS: Final = "mlflow-artifacts"  # beside the database
EXPERIMENT: Final = "hogbatch"  # if there is no MLFLOW_EXPERIMENT_NAME
RETRIES: Final = "5"  # of a request, in about a minute; MLflow's own default takes four
MAX_PARAMS: Final = 100  # in one request
MAX_METRICS: Final = 1000
MAX_VALUE: Final = 6000  # characters of a parameter
NOT_FOUND: Final = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
END_STATUS: Final = {"failed": "FAILED", "stopped": "KILLED", "killed": "KILLED"}


class MlflowRun:
    """Logs to MLFLOW_TRACKING_URI; without it, to a SQLite database beside the run directory."""

    def __init__(self) -> None:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", RETRIES)
        self._client: MlflowClient | None = None
        self._run_id = ""
        self._began_at = 0.0
        self._last = (0, 0.0)  # step and training seconds

    def start(self, run: RunDescription) -> str:
        run_dir = Path(run.run_dir)
        uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{run_dir.parent / DATABASE}"
        self._client = client = MlflowClient(uri)
        self._began_at, self._last = run.began_at, (max(0, run.resumed_rows or 0), 0.0)
        stored = run_dir / MLFLOW_RUN
        continues = run.resumed_rows is not None and stored.exists()
        known = stored.read_text().strip() if continues else ""
        if not known or not self._continue(known, run.settings):
            experiment = self._experiment(run_dir.parent)
            created = client.create_run(
                experiment,
                start_time=_milliseconds(run.began_at),
                tags={"mlflow.source.name": "hogbatch"},
                run_name=run_dir.name,
            )
            self._run_id = created.info.run_id
            replace_file(stored, [f"{self._run_id}\n".encode()])
            self._log_params(run.settings)
        return f"mlflow: run {self._run_id} at {without_credentials(uri, os.environ)}"

    def log(self, points: Sequence[Point]) -> None:
        metrics = [
            Metric(mlflow_name(name), x, _milliseconds(self._began_at + point.seconds), point.step)
            for point in points
            for name, x in point.values.items()
        ]
        self._last = (points[-1].step, points[-1].seconds)
        for start in range(0, len(metrics), MAX_METRICS):
            batch = metrics[start : start + MAX_METRICS]
            self._started().log_batch(self._run_id, metrics=batch)

    def finish(self, result: RunResult) -> None:
        client, (step, seconds) = self._started(), self._last
        end = _milliseconds(self._began_at + seconds)
        named = result.named()
        tags = [RunTag(name, value) for name, value in named.items() if isinstance(value, str)]
        metrics = [
            Metric(name, value, end, step)
            for name, value in named.items()
            if not isinstance(value, str)
        ]
        client.log_batch(self._run_id, metrics=metrics, tags=tags)
        client.set_terminated(self._run_id, END_STATUS.get(result.status, "FINISHED"), end)

    def abandon(self) -> None:
        """Every call has already waited for the server."""

    def _started(self) -> MlflowClient:
        if self._client is None:
            raise RuntimeError("start was not called")
        return self._client

    def _experiment(self, parent: Path) -> str:
        """The ID of the experiment, which is created if it does not exist."""
        if given := os.environ.get("MLFLOW_EXPERIMENT_ID"):
            return given
        client, name = self._started(), os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
        if (found := client.get_experiment_by_name(name)) is not None:
            return str(found.experiment_id)
        local = not os.environ.get("MLFLOW_TRACKING_URI")
        try:
            return client.create_experiment(name, str(parent / ARTIFACTS) if local else None)
        except MlflowException:  # another run may have created it meanwhile
            if (found := client.get_experiment_by_name(name)) is None:
                raise
            return str(found.experiment_id)

    def _continue(self, run_id: str, settings: Mapping[str, object]) -> bool:
        """Set a run to running again; False if the server does not have it.

        MLflow does not change a parameter, so settings that now differ become tags.
        """
        client = self._started()
        try:
            known = client.get_run(run_id).data.params
        except MlflowException as error:
            if error.error_code in NOT_FOUND:
                return False
            raise
        self._run_id = run_id
        client.update_run(run_id, status="RUNNING")
        self._log_params(
            {name: x for name, x in settings.items() if mlflow_name(name) not in known}
        )
        changed = [
            RunTag(f"resumed.{name}", _text(value))
            for name, value in settings.items()
            if known.get(mlflow_name(name), _text(value)) != _text(value)
        ]
        client.log_batch(run_id, tags=changed)
        return True

    def _log_params(self, settings: Mapping[str, object]) -> None:
        params = [Param(mlflow_name(name), _text(value)) for name, value in settings.items()]
        for start in range(0, len(params), MAX_PARAMS):
            self._started().log_batch(self._run_id, params=params[start : start + MAX_PARAMS])


def _text(value: object) -> str:
    return str(value)[:MAX_VALUE]


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds)
