"""A course: all variants of a training step on one network, checked to do the same work."""

from collections.abc import Collection
from typing import Any

import numpy as np

from benchmarks.gpu_step import hogbatch_steps
from benchmarks.gpu_step.problem import SyntheticProblem, TimedWork, TrainingSteps
from hogbatch.errors import UsageError

CHECKED_STEPS = 20
CHECKED_BATCHES = 4  # these steps cycle through them, so each loss has an earlier one of its rows
TOLERANCES = {"float32": 0.02, "tf32": 0.05, "bfloat16": 0.1}  # fraction of the change by training

Losses = dict[str, list[float]]


class Course:
    """One network, precision and optimizer, with its rows on the device."""

    def __init__(
        self, device: str, problem: SyntheticProblem, precision: str, optimizer: str, largest: int
    ) -> None:
        """`largest`: maximum batch size."""
        self.problem, self.precision, self.optimizer = problem, precision, optimizer
        self.left_out: dict[str, str] = {}  # peers that failed, with the error
        self._name = device
        self._device = hogbatch_steps.device_of(device, precision)
        self._multiply = hogbatch_steps.multiplier(self._device, precision)
        self._rows = hogbatch_steps.resident(self._device, problem, largest)
        self._torch_rows: Any = None
        self._compiled = False

    def trained(
        self, batch: int, peers: Collection[str]
    ) -> tuple[dict[str, TrainingSteps], Losses]:
        """All variants of the step, at the start, and the losses of their first steps.

        A peer that fails is left out of this course from then on.
        """
        steps, losses = dict[str, TrainingSteps](), Losses()
        for name, variant in hogbatch_steps.variants(self.problem).items():
            settings = self.problem, batch, self.optimizer, variant
            steps[name] = hogbatch_steps.HogbatchSteps(self._device, self._rows, *settings)
            losses[name] = losses_of(steps[name], batch)
        for name in (name for name in peers if name not in self.left_out):
            try:
                peer = self._peer(name, batch)
                if peer is not None:
                    losses[name] = losses_of(peer, batch)
                    steps[name] = peer
            except Exception as failure:  # the others can still be measured
                self.left_out[name] = (str(failure).strip().splitlines() or [repr(failure)])[0]
                print(f"skipping {name}: {self.left_out[name]}", flush=True)
        return steps, losses

    def _peer(self, name: str, batch: int) -> TrainingSteps | None:
        """The peer's steps; None if it is not for such rows."""
        from benchmarks.gpu_step import pytorch_steps

        form = pytorch_steps.FORMS[name]
        if not pytorch_steps.takes(form, self.problem):
            return None
        if self._torch_rows is None:
            place = pytorch_steps.prepare(self._name, self.precision)
            self._torch_rows = pytorch_steps.Resident(self.problem, place)
        self._compiled |= bool(form.mode)
        settings = self.problem, batch, self.precision, self.optimizer, form
        return pytorch_steps.TorchSteps(self._torch_rows, *settings)

    def products(self, batch: int) -> TimedWork:
        """The matrix products of a step alone."""
        return hogbatch_steps.Products(self._device, self.problem, batch, self._multiply)

    def free(self) -> None:
        """Free the memory of steps that are no longer referenced."""
        if self._torch_rows is not None:
            from benchmarks.gpu_step import pytorch_steps

            pytorch_steps.free(self._compiled)
            self._compiled = False
        self._device.free_unused()


def losses_of(steps: TrainingSteps, batch: int) -> list[float]:
    """The losses of CHECKED_STEPS steps, and of one more that shows the effect of the last."""
    found = []
    for n in range(CHECKED_STEPS + 1):
        steps.step(n % CHECKED_BATCHES * batch)
        found.append(steps.loss())
    return found


def check(losses: Losses, precision: str) -> float:
    """The maximum difference between losses of the same step over the maximum change by training.

    UsageError if that exceeds the tolerance of `precision`.
    """
    found = np.array(list(losses.values()))
    before = found[:, np.arange(found.shape[1]) % CHECKED_BATCHES]
    moved, apart = float(np.abs(found - before).max()), float(np.ptp(found, axis=0).max())
    if not (moved > 0 and apart <= TOLERANCES[precision] * moved):
        last = ", ".join(f"{name} {each[-1]:.6g}" for name, each in losses.items())
        raise UsageError(
            f"expected the same losses after {CHECKED_STEPS} steps from the same start, within "
            f"{TOLERANCES[precision]:g} of their change of {moved:.3g}; they differ by {apart:.3g} "
            f"({last}), so the variants do different work and their times cannot be compared"
        )
    return apart / moved
