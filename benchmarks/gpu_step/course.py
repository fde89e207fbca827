"""A course: all variants of a training step on one network, compared by their losses."""

from collections.abc import Collection
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu_step import hogbatch_steps
from benchmarks.gpu_step.problem import SyntheticProblem, TimedWork, TrainingSteps

CHECKED_STEPS = 20
CHECKED_BATCHES = 4  # these steps cycle through them, so each loss has an earlier one of its rows
TOLERANCES = {"float32": 0.02, "tf32": 0.05, "bfloat16": 0.1}  # fraction of the change by training

REFERENCE: Final = "hogbatch"

Losses = dict[str, list[float]]


class Agreement(NamedTuple):
    """How far the losses of each variant are from those of REFERENCE.

    In fractions of the change by training; None if one of the two is not finite, or nothing was
    learned.
    """

    differences: dict[str, float | None]
    tolerance: float

    @property
    def mismatched(self) -> list[str]:
        """The variants that do different work, so that their times cannot be compared."""
        within = {n for n, d in self.differences.items() if d is not None and d <= self.tolerance}
        return [name for name in self.differences if name not in within]


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
            device = pytorch_steps.prepare(self._name, self.precision)
            self._torch_rows = pytorch_steps.Resident(self.problem, device)
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
    losses = []
    for n in range(CHECKED_STEPS + 1):
        steps.step(n % CHECKED_BATCHES * batch)
        losses.append(steps.loss())
    return losses


def compare(losses: Losses, precision: str) -> Agreement:
    """Compare the losses of the same steps, in fractions of the maximum change by training."""
    arrays = {name: np.array(each) for name, each in losses.items()}
    finite = {name: each for name, each in arrays.items() if np.isfinite(each).all()}
    moved = max((_moved(each) for each in finite.values()), default=0.0)
    reference = finite.get(REFERENCE)
    differences = dict.fromkeys(arrays, None) | {
        name: float(np.abs(each - reference).max()) / moved
        for name, each in finite.items()
        if reference is not None and moved > 0
    }
    return Agreement(differences, TOLERANCES[precision])


def _moved(losses: NDArray[np.float64]) -> float:
    """The maximum change between two losses of the same rows."""
    steps = np.arange(len(losses))
    return float(np.abs(losses - losses[steps % CHECKED_BATCHES]).max())
