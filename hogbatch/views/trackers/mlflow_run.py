"""A run of MLflow, on a tracking server or in a local database."""

import logging
import os
from typing import Final

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from hogbatch.events.names import MLFLOW_RUN
from hogbatch.views.trackers.base import Point, Result, RunStart, Tracker
from hogbatch.views.trackers.names import mlflow_name

DATABASE: Final = "mlflow.db"  # beside the run directory, if there is no MLFLOW_TRACKING_URI
ARTIFACTS: Final = "mlflow-artifacts"  # beside the database
EXPERIMENT: Final = "hogbatch"  # if there is no MLFLOW_EXPERIMENT_NAME
MAX_PARAMS: Final = 100  # in one request
STATUS: Final = {"failed": "FAILED", "stopped": "KILLED"}  # others: FINISHED

logging.getLogger("mlflow.store.db").setLevel(logging.WARNING)  # not: "Creating tables..."


class MlflowRun(Tracker):
    """Logs to MLFLOW_TRACKING_URI, or to a SQLite database beside the run directory."""

    def __init__(self, run: RunStart) -> None:
        path = run.run_dir.parent / DATABASE
        database, local = f"sqlite:///{path}", not os.environ.get("MLFLOW_TRACKING_URI")
        if local:  # SQLite would create it as the umask allows
            path.touch(mode=0o600)
        self._client = client = MlflowClient(database if local else None)
        self._began_at = run.began_at
        stored = run.run_dir / MLFLOW_RUN
        known: dict[str, str] = {}  # parameters that the run already has
        if run.resumed_rows is not None and stored.exists():
            self._id = stored.read_text().strip()
            known = client.get_run(self._id).data.params
            client.update_run(self._id, status="RUNNING")
        else:
            created = client.create_run(
                self._experiment(str(run.run_dir.parent / ARTIFACTS) if local else None),
                start_time=self._milliseconds(0.0),
                tags={"mlflow.source.name": "hogbatch"},
                run_name=run.run_dir.name,
            )
            self._id = created.info.run_id
            stored.write_text(f"{self._id}\n")
        settings = {mlflow_name(name): str(value) for name, value in run.settings.items()}
        new = [Param(name, value) for name, value in settings.items() if name not in known]
        for begin in range(0, len(new), MAX_PARAMS):
            client.log_batch(self._id, params=new[begin : begin + MAX_PARAMS])
        for name, value in settings.items():
            if known.get(name, value) != value:  # MLflow does not change a parameter
                client.set_tag(self._id, f"resumed.{name}", value)
        self.note = f"mlflow: run {self._id}" + (f" in {database}" if local else "")

    def log(self, point: Point) -> None:
        at = self._milliseconds(point.seconds)
        metrics = [Metric(mlflow_name(name), x, at, point.step) for name, x in point.values.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def close(self, result: Result) -> None:
        for name, value in result.items():
            if isinstance(value, str):
                self._client.set_tag(self._id, name, value)
            else:
                self._client.log_metric(self._id, name, value)
        status = STATUS.get(str(result["result/status"]), "FINISHED")
        self._client.set_terminated(self._id, status)

    def _experiment(self, artifacts: str | None) -> str:
        """The ID of the experiment, which is created, with this location, if it is new."""
        if experiment_id := os.environ.get("MLFLOW_EXPERIMENT_ID"):
            return experiment_id
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
        if experiment := self._client.get_experiment_by_name(name):
            return str(experiment.experiment_id)
        return self._client.create_experiment(name, artifacts)

    def _milliseconds(self, seconds: float) -> int:
        return round(1000 * (self._began_at + seconds))
