"""Dense layers and dense steps. Products go to cuBLAS, the rest is one launch each."""

import cupy

from hogbatch.kernels.contract import LINEAR, MOMENTUM, SGD
from hogbatch.kernels.gpu.launch import THREADS, kernel, over_cells, over_rows, reach

_gather = kernel("dense", "gather")
_activate = kernel("dense", "activate")
_activate_backward = kernel("dense", "activate_backward")
_bound_rows = kernel("dense", "bound_rows")
_step = kernel("dense", "step")


def gather(inputs, rows, out):
    features = inputs.dense.shape[1]
    over_cells(_gather, out.size, inputs.dense, rows, out.size, features, out.shape[1], out)


def dense_forward(x, weights, bias, out):
    cupy.matmul(x, weights, out=out)
    cupy.add(out, bias, out=out)


def activate(kind, width, out):
    stored = out.shape[1]
    if kind != LINEAR or width < stored:
        over_cells(_activate, out.size, kind, width, out.size, stored, out)


def activate_backward(kind, activated, grad):
    if kind != LINEAR:
        over_cells(_activate_backward, grad.size, kind, grad.size, activated, grad)


def dense_backward(grad, weights, out):
    cupy.matmul(grad, weights.T, out=out)


def bound_rows(kind, hyper, x, grad):
    if kind in (SGD, MOMENTUM):
        batch, width = grad.shape
        fan_in = x.shape[1]
        over_rows(_bound_rows, batch, THREADS, reach(kind, hyper), batch, fan_in, width, x, grad)


def weight_gradient(x, grad, out):
    cupy.matmul(x.T, grad, out=out)


def bias_gradient(grad, out):
    cupy.sum(grad, axis=0, out=out)


def step(kind, hyper, gradient, slots, weights):
    count = weights.size
    over_cells(_step, count, kind, *map(float, hyper), count, gradient, *slots, weights)
