"""The update rules of the optimizers, each written once, and the loops over them.

    step_row    one step on 1-D arrays: a block of dense weights, biases, active outputs
    step_cell   one step on one cell: a linear model
    RULES       traced with vectors by `kernels.cpu.rows`: touched rows of a sparse input layer

A rule is a function of (numbers, g, slots...) that returns the step, which is subtracted from the
weight, and the new slots; g is the gradient with weight decay, unless that is decoupled.
hogbatch.config.optimizers states the formulas. Compiled, a rule is inlined into the loops here.
Called from Python with a `Vector` for each number, it writes the same operations, in the same
order, into a micro-kernel.

`step_row` has one loop per optimizer: each is vectorised, and reads no slots that its optimizer
does not have. `step_cell` writes the weight in each branch, and its last branch is an `else`, on
purpose: with one write after the branches, or with `elif kind == ADAM`, LLVM rounds the products of
a linear model differently, and deterministic runs give other models than before.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Self

import numpy as np
from llvmlite import ir

from hogbatch.jit import kernel
from hogbatch.kernels.contract import (
    ADAGRAD,
    ADAM,
    ADAPTIVE,
    DECOUPLED,
    LARGEST,
    MOMENTUM,
    SGD,
)
from hogbatch.kernels.cpu.simd import FLOAT, ZERO, FunctionBuilder


class Numbers(NamedTuple):
    """The constants of a step: float32 each, or a vector with the constant in every lane.

    1 - beta is computed in float64, where it is exact enough.
    """

    rate: Any
    l2: Any
    momentum: Any
    fresh_first: Any  # 1 - momentum
    fresh_second: Any  # 1 - beta2
    epsilon: Any


@kernel
def numbers_of(hyper):
    """The constants of a step, rounded from `contract.Hyper`."""
    return Numbers(
        np.float32(hyper.rate),
        np.float32(hyper.l2),
        np.float32(hyper.momentum),
        np.float32(1.0 - hyper.momentum),
        np.float32(1.0 - hyper.beta2),
        np.float32(hyper.epsilon),
    )


# --- the rules ------------------------------------------------------------------------------------


@kernel
def sgd(n, g):
    return (n.rate * g,)


@kernel
def momentum(n, g, m):
    m = n.momentum * m + g
    return n.rate * m, m


@kernel
def adagrad(n, g, s):
    s = s + g * g
    return n.rate * g / (np.sqrt(s) + n.epsilon), s


@kernel
def adam(n, g, m, v):
    m = m + n.fresh_first * (g - m)
    v = v + n.fresh_second * (g * g - v)
    return n.rate * m / (np.sqrt(v) + n.epsilon), m, v


RULES: Final = {
    kind: rule.py_func  # what Numba has not compiled
    for kind, rule in ((SGD, sgd), (MOMENTUM, momentum), (ADAGRAD, adagrad), (ADAM, adam))
}


@kernel
def sane(gradient):
    """The gradient that adaptive optimizers take: 0 if it is LARGEST or more, or not finite."""
    return gradient if abs(gradient) < np.float32(LARGEST) else np.float32(0.0)


# --- the loops ------------------------------------------------------------------------------------


# Hogwild: other threads and processes write `weights` at the same time, and no lock is taken. An
# update may be lost when two of them write one cell together; SGD tolerates that (Niu et al. 2011).
@kernel
def step_row(kind, hyper, gradient, first, second, weights):
    """One optimizer step on 1-D arrays of one length; see `reference.Kernels.step`."""
    n = numbers_of(hyper)
    if kind == SGD:
        for i in range(weights.shape[0]):
            (step,) = sgd(n, gradient[i] + n.l2 * weights[i])
            weights[i] -= step
    elif kind == MOMENTUM:
        for i in range(weights.shape[0]):
            m = first[i]
            step, first[i] = momentum(n, gradient[i] + n.l2 * weights[i], m)
            weights[i] -= step
    elif kind == ADAGRAD:
        for i in range(weights.shape[0]):
            g = sane(gradient[i]) + n.l2 * weights[i]
            step, first[i] = adagrad(n, g, first[i])
            weights[i] -= step
    elif kind == ADAM:
        for i in range(weights.shape[0]):
            step, first[i], second[i] = adam(n, sane(gradient[i]), first[i], second[i])
            weights[i] -= step + n.rate * n.l2 * weights[i]


@kernel
def step_cell(kind, hyper, gradient, cells, f):
    """One optimizer step on cell `f` of `linear.Cells`; see `reference.Kernels.step`."""
    n, w = numbers_of(hyper), cells.weights[f]
    decay = n.l2 * w
    if kind == SGD:
        (step,) = sgd(n, gradient + decay)
        cells.weights[f] = w - step
    elif kind == MOMENTUM:
        step, cells.first[f] = momentum(n, gradient + decay, cells.first[f])
        cells.weights[f] = w - step
    elif kind == ADAGRAD:
        step, cells.first[f] = adagrad(n, sane(gradient) + decay, cells.first[f])
        cells.weights[f] = w - step
    else:
        g = sane(gradient)
        step, cells.first[f], cells.second[f] = adam(n, g, cells.first[f], cells.second[f])
        cells.weights[f] = w - (step + n.rate * decay)


# --- vectors --------------------------------------------------------------------------------------


class Vector:
    """WIDTH floats in a register; operators write instructions.

    A product remembers its factors, so that adding it is one instruction that rounds once.
    """

    def __init__(
        self,
        writer: FunctionBuilder,
        value: ir.Value,
        factors: tuple[ir.Value, ir.Value] | None = None,
    ) -> None:
        self._writer = writer
        self.value = value
        self._factors = factors

    def _new(self, value: ir.Value) -> Self:
        return type(self)(self._writer, value)

    def __mul__(self, other: Self) -> Self:
        product = self._writer.build.fmul(self.value, other.value)
        return type(self)(self._writer, product, (self.value, other.value))

    def __add__(self, other: Self) -> Self:
        for product, term in ((self, other), (other, self)):
            if product._factors is not None:
                return self._new(self._writer.multiply_add(*product._factors, term.value))
        return self._new(self._writer.build.fadd(self.value, other.value))

    def __sub__(self, other: Self) -> Self:
        if other._factors is None:
            return self._new(self._writer.build.fsub(self.value, other.value))
        x, y = other._factors
        return self._new(self._writer.multiply_add(self._writer.build.fneg(x), y, self.value))

    def __truediv__(self, other: Self) -> Self:
        return self._new(self._writer.build.fdiv(self.value, other.value))

    def sqrt(self) -> Self:
        """The method that np.sqrt calls."""
        return self._new(self._writer.sqrt(self.value))


def _sane_vector(w: FunctionBuilder, gradient: ir.Value) -> ir.Value:
    """`sane` in every lane."""
    most, least = (w.broadcast(ir.Constant(FLOAT, x)) for x in (LARGEST, -LARGEST))
    below = w.build.fcmp_ordered("<", gradient, most)
    above = w.build.fcmp_ordered(">", gradient, least)
    return w.build.select(w.build.and_(below, above), gradient, ZERO)


def traced(
    w: FunctionBuilder, kind: int, numbers: list[ir.Value]
) -> Callable[[ir.Value, list[ir.Value]], list[ir.Value]]:
    """One vector's step: (gradient, [weights, slots...]) to new [weights, slots...].

    `numbers` are those of `Numbers`, a vector each.
    """
    n = Numbers(*(Vector(w, each) for each in numbers))

    def step(gradient: ir.Value, old: list[ir.Value]) -> list[ir.Value]:
        taken = _sane_vector(w, gradient) if kind in ADAPTIVE else gradient
        weights, *slots = (Vector(w, each) for each in old)
        decay, g = n.l2 * weights, Vector(w, taken)
        change, *slots = RULES[kind](n, g if kind in DECOUPLED else g + decay, *slots)
        if kind in DECOUPLED:
            change = change + n.rate * decay
        return [each.value for each in (weights - change, *slots)]

    return step
