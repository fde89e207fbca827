"""The computing part of a simulated worker, as `workers.session.Engine` is that of a real one."""

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from hogbatch.wire.messages import Done, Failed, FromServer, Lease, Ready, Welcome


class Host(Protocol):
    """The simulated process that an engine runs in."""

    @property
    def now(self) -> float:
        """The simulated time, in seconds."""

    @property
    def alive(self) -> bool:
        """Whether the process has not exited."""

    @property
    def fence(self) -> int | None:
        """The fence of this worker; None before it is admitted."""

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        """Run `action` in `seconds`, if the process is alive; later if it is stopped then."""

    def post(self, message: Done | Failed | FromServer) -> None:
        """Send a result to the coordinator."""

    def exit(self, cause: str) -> None:
        """End the process; `cause` is empty if that was intended."""


class Prepared(NamedTuple):
    """An engine that is ready for leases."""

    seconds: float  # from Welcome to Ready
    ready: Ready


class SimulatedEngine(Protocol):
    """Turns leases into results, at simulated times."""

    @property
    def device(self) -> Literal["cpu", "gpu", "server"]:
        """The device, as in Hello."""

    @property
    def label(self) -> str:
        """As in Hello.name: "cpu:2", "gpu:0"."""

    @property
    def threads(self) -> int:
        """The number of threads that compute."""

    def prepare(self, welcome: Welcome, host: Host) -> Prepared:
        """Take part in the run of `welcome`; results are posted to `host`."""

    def submit(self, lease: Lease) -> None:
        """Queue a lease."""
