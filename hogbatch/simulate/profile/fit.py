"""Fits the figures of a description to measured times.

The figures are adjusted by damped Gauss-Newton steps on their logarithms, so they stay positive.
The errors are differences of logarithms too, so a probe of a microsecond counts as much as one of a
second. A figure that no probe depends on keeps its value.
"""

import math
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from hogbatch.simulate.hardware.description import Section

NOT_MEASURED: Final = "not measured: a usual value"
ROUNDS: Final = 40
USUAL_ERROR: Final = 0.1  # a logarithm; probes with larger errors may be disturbed and count less
STEP: Final = 1e-3  # of the logarithm of a figure, for the derivative
LARGEST_STEP: Final = 1.0  # of the logarithm of a figure in one round
PULL: Final = 0.02  # weight of the difference from the value at the start
UNCHANGED: Final = 1e-3  # difference from it of figures that no probe determines

Described = TypeVar("Described", bound=Section)


class Probe(NamedTuple):
    """One measured time."""

    name: str
    seconds: float
    predict: Callable[[Any], float]  # the seconds that a description predicts


def fit(described: Described, figures: Sequence[str], probes: Sequence[Probe]) -> Described:
    """Return `described` with the values of `figures` for which it predicts `probes` best.

    `figures` are names such as "flops", or "dense.flops" in a section. Those that no probe
    determines are labelled in the `sources` of their section.
    """
    start: NDArray[np.float64] = np.log([attrgetter(name)(described) for name in figures])
    logs, damping = start.copy(), 1e-2

    def errors(values: NDArray[np.float64]) -> NDArray[np.float64]:
        candidate = _with(described, figures, values)
        wrong = [_robust(math.log(each.predict(candidate) / each.seconds)) for each in probes]
        return np.array([*wrong, *(PULL * (values - start))])

    best = errors(logs)
    for _ in range(ROUNDS):
        shifted = [errors(logs + STEP * unit) for unit in np.eye(len(figures))]
        slope = (np.array(shifted) - best).T / STEP
        normal = slope.T @ slope + damping * np.eye(len(figures))
        step = np.clip(np.linalg.solve(normal, -slope.T @ best), -LARGEST_STEP, LARGEST_STEP)
        tried = errors(logs + step)
        if tried @ tried < best @ best:
            logs, best, damping = logs + step, tried, damping / 3
        else:
            damping *= 4
    fitted = _with(described, figures, logs)
    for name in np.array(figures)[abs(logs - start) < UNCHANGED]:
        *section, figure = str(name).split(".")
        path = [*section, "sources"]
        known = attrgetter(".".join(path))(fitted)
        fitted = _replaced(fitted, path, {**known, figure: NOT_MEASURED})
    return fitted


def _robust(error: float) -> float:
    """The error, or a smaller one whose square is linear in it (Huber 1964)."""
    size = abs(error)
    if size <= USUAL_ERROR:
        return error
    return math.copysign(math.sqrt(USUAL_ERROR * (2 * size - USUAL_ERROR)), error)


def _with(described: Described, figures: Sequence[str], logs: NDArray[np.float64]) -> Described:
    """Return `described` with new values of `figures`, of which `logs` are the logarithms."""
    for name, value in zip(figures, np.exp(logs), strict=True):
        described = _replaced(described, name.split("."), float(value))
    return described


def _replaced(described: Any, path: Sequence[str], value: Any) -> Any:
    first, *rest = path
    inner = _replaced(getattr(described, first), rest, value) if rest else value
    return structs.replace(described, **{first: inner})
