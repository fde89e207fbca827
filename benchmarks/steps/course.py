"""Who takes steps on a network, and whether they all do the same."""

from collections.abc import Collection
from typing import Any

import numpy as np

from hogbatch.errors import UsageError
from steps import ours
from steps.problem import Problem, Steps, Work

CHECKED_STEPS = 20
CHECKED_BATCHES = 4  # that those steps go round, so that each loss has an earlier one of its rows
TOLERANCES = {"float32": 0.02, "tf32": 0.05, "bfloat16": 0.1}  # share of what training moved

Losses = dict[str, list[float]]


class Course:
    """One network, precision and optimizer, with its rows on the device."""

    def __init__(
        self, device: str, problem: Problem, precision: str, optimizer: str, largest: int
    ) -> None:
        """`largest`: rows of any batch."""
        self.problem, self.precision, self.optimizer = problem, precision, optimizer
        self.left_out: dict[str, str] = {}  # peers that failed, and how
        self._name = device
        self._device = ours.device_of(device, precision)
        self._multiply = ours.multiplier(self._device, precision)
        self._rows = ours.resident(self._device, problem, largest)
        self._torch_rows: Any = None
        self._compiled = False

    def trained(self, batch: int, peers: Collection[str]) -> tuple[dict[str, Steps], Losses]:
        """All who take such steps, from the start on, and the loss of each that they have taken.

        A peer that fails is left out of this course from now on.
        """
        steps, losses = dict[str, Steps](), Losses()
        for name, variant in ours.variants(self.problem).items():
            settings = self.problem, batch, self.optimizer, variant
            steps[name] = ours.OurSteps(self._device, self._rows, *settings)
            losses[name] = losses_of(steps[name], batch)
        for name in (name for name in peers if name not in self.left_out):
            try:
                peer = self._peer(name, batch)
                if peer is not None:
                    losses[name] = losses_of(peer, batch)
                    steps[name] = peer
            except Exception as failure:  # whatever it is, the others can be measured
                self.left_out[name] = (str(failure).strip().splitlines() or [repr(failure)])[0]
                print(f"{name} left out: {self.left_out[name]}", flush=True)
        return steps, losses

    def _peer(self, name: str, batch: int) -> Steps | None:
        """None if it is not for such rows."""
        from steps import pytorch

        form = pytorch.FORMS[name]
        if not pytorch.takes(form, self.problem):
            return None
        if self._torch_rows is None:
            place = pytorch.prepare(self._name, self.precision)
            self._torch_rows = pytorch.Resident(self.problem, place)
        self._compiled |= bool(form.mode)
        settings = self.problem, batch, self.precision, self.optimizer, form
        return pytorch.TorchSteps(self._torch_rows, *settings)

    def products(self, batch: int) -> Work:
        """The matrix products of a step alone."""
        return ours.Products(self._device, self.problem, batch, self._multiply)

    def free(self) -> None:
        """Give back the memory of steps that nobody holds any more."""
        if self._torch_rows is not None:
            from steps import pytorch

            pytorch.free(self._compiled)
            self._compiled = False
        self._device.free_unused()


def losses_of(steps: Steps, batch: int) -> list[float]:
    """Of CHECKED_STEPS steps, and of one more that shows what the last of them did."""
    found = []
    for n in range(CHECKED_STEPS + 1):
        steps.step(n % CHECKED_BATCHES * batch)
        found.append(steps.loss())
    return found


def check(losses: Losses, precision: str) -> float:
    """How far losses of the same step lie apart at most, over the most that training moved one.

    UsageError if that is too far.
    """
    found = np.array(list(losses.values()))
    before = found[:, np.arange(found.shape[1]) % CHECKED_BATCHES]
    moved, apart = float(np.abs(found - before).max()), float(np.ptp(found, axis=0).max())
    if not (moved > 0 and apart <= TOLERANCES[precision] * moved):
        last = ", ".join(f"{name} {each[-1]:.6g}" for name, each in losses.items())
        raise UsageError(
            f"{CHECKED_STEPS} steps from the same start should lead to the same losses within "
            f"{TOLERANCES[precision]:g} of the {moved:.3g} that they moved; got {apart:.3g} apart "
            f"({last}), so not all do the same work, and their times are not to be compared"
        )
    return apart / moved
