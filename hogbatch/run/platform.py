"""The platform of a run: this server, several servers, or a simulated one."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

from hogbatch.config.train import TrainConfig
from hogbatch.config.values import WorkerRequest
from hogbatch.coordinator.plan import Plan
from hogbatch.machine.environment import read_environment
from hogbatch.machine.process import ProcessIdentity
from hogbatch.model.network import Network
from hogbatch.policy.choose import Factory
from hogbatch.run.components import Outcome, RunComponents
from hogbatch.run.setup import RunSetup
from hogbatch.views.console import Console


class Platform(ABC):
    """The processors that a run trains on, and its clock. The defaults are those of this server."""

    prefix: ClassVar[str] = ""  # of every printed line

    @property
    def marks(self) -> Mapping[str, Any]:
        """Fields added to every event, to summary.json and to the metadata of the model file."""
        return {}

    @property
    def origin(self) -> Mapping[str, Any]:
        """This process and machine, as fields of `Started`; empty: no event depends on them."""
        return {"process": asdict(ProcessIdentity.own()), "environment": read_environment()}

    def now(self) -> float:
        """The time for events, in seconds: since 1970 on this server, since the start on others."""
        return time.time()

    def policy(self, chosen: Factory) -> Factory:
        """Return the batch policy of the coordinator; `chosen` is the one of the settings."""
        return chosen

    def plan(self, config: TrainConfig, plan: Plan, network: Network) -> Plan:
        """Return the plan of the coordinator; `plan` is the one for workers on this server."""
        return plan

    def members(self, setup: RunSetup) -> int | None:
        """Return the number of models to train; None: one."""
        return setup.config.members

    def in_memory(self, workers: tuple[WorkerRequest, ...]) -> tuple[WorkerRequest, ...]:
        """Return `workers` as they use the memory of this server: "host" for a simulated GPU."""
        return workers

    def close(self) -> None:  # noqa: B027
        """Release what was opened for the run, also if it could not begin."""

    @abstractmethod
    def choose_workers(self, config: TrainConfig, console: Console) -> tuple[WorkerRequest, ...]:
        """Return the workers to start, and print which they are."""

    @abstractmethod
    def run(self, components: RunComponents, workers: tuple[WorkerRequest, ...]) -> Outcome:
        """Train until the coordinator finishes."""
