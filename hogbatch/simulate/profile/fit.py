"""Fits the figures of a description to measured times.

The figures are adjusted by damped Gauss-Newton steps on their logarithms, so they stay positive.
The errors are differences of logarithms too, so a probe of a microsecond counts as much as one of a
second. A figure that no probe depends on keeps its value.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

NOT_MEASURED = "not measured: a usual value"
Described = TypeVar("Described", bound=Any)  # a dataclass of hogbatch.simulate.hardware.description

ROUNDS = 40
USUAL_ERROR = 0.1  # a logarithm; probes with larger errors, which may be disturbed, count less
UNMEASURED = 0.01  # logarithm of a prediction per logarithm of a figure that no probe determines
STEP = 1e-3  # of the logarithm of a figure, for the derivative
LARGEST_STEP = 1.0  # of the logarithm of a figure in one round
PULL = 0.02  # weight of the difference from the value at the start; keeps unused figures in place


class Probe(NamedTuple):
    """One measured time."""

    name: str
    seconds: float
    predict: Callable[[Any], float]  # the seconds that a description predicts


def fit(described: Described, figures: Sequence[str], probes: Sequence[Probe]) -> Described:
    """Return `described` with the values of `figures` for which it predicts `probes` best.

    `figures` are names such as "flops", or "dense.flops" in a section.
    """
    start = np.log([_get(described, name) for name in figures])
    logs, damping = start.copy(), 1e-2

    def errors(values: NDArray[np.float64]) -> NDArray[np.float64]:
        candidate = _with(described, figures, np.exp(values))
        parts = [math.log(probe.predict(candidate) / probe.seconds) for probe in probes]
        return np.array([*map(_robust, parts), *(PULL * (values - start))])

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
    fitted: Described = _with(described, figures, np.exp(logs))
    return fitted


def undetermined(
    start: Described, fitted: Described, figures: Sequence[str], probes: Sequence[Probe]
) -> list[str]:
    """Return those of `figures` that change no probe, neither at `start` nor where they `fitted`.

    A figure whose effect is small only at the end was found to be small, which is a measurement.
    """
    return [
        name
        for name in figures
        if all(
            _sensitivity(described, name, probe) < UNMEASURED
            for described in (start, fitted)
            for probe in probes
        )
    ]


def _sensitivity(described: Any, name: str, probe: Probe) -> float:
    """The relative change of a prediction for a relative change of one figure, without its sign."""
    lower = _with(described, (name,), np.array([_get(described, name) * math.exp(-STEP)]))
    return abs(math.log(probe.predict(described) / probe.predict(lower))) / STEP


def with_usual_values(described: Described, start: Described, figures: Sequence[str]) -> Described:
    """Return `described` with the values of `start` for `figures`, whose `sources` say so."""
    for name in figures:
        *section, figure = name.split(".")
        described = _with(described, (name,), np.array([_get(start, name)]))
        described = with_source(described, section, figure, NOT_MEASURED)
    return described


def with_source(described: Described, section: Sequence[str], figure: str, text: str) -> Described:
    """Return `described` with `text` as the source of one figure in a section."""
    table = described
    for part in section:
        table = getattr(table, part)
    changed: Described = _replaced(
        described, [*section, "sources"], {**table.sources, figure: text}
    )
    return changed


def _robust(error: float) -> float:
    """The error, or a smaller one whose square is linear in it (Huber 1964)."""
    size = abs(error)
    if size <= USUAL_ERROR:
        return error
    return math.copysign(math.sqrt(USUAL_ERROR * (2 * size - USUAL_ERROR)), error)


def _get(described: Any, name: str) -> float:
    value = described
    for part in name.split("."):
        value = getattr(value, part)
    return float(value)


def _with(described: Any, figures: Sequence[str], values: NDArray[np.float64]) -> Any:
    """Return `described` with new values of `figures`."""
    for name, value in zip(figures, values, strict=True):
        described = _replaced(described, name.split("."), float(value))
    return described


def _replaced(described: Any, path: Sequence[str], value: Any) -> Any:
    first, *rest = path
    inner = _replaced(getattr(described, first), rest, value) if rest else value
    return replace(described, **{first: inner})
