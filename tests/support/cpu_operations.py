"""The operations of `Kernels`, by the functions that the compiled loops of CPUs call.

Arguments have the types that the loops pass, so that nothing is compiled for tests alone.
"""

import numpy as np

from hogbatch.kernels.contract import Links
from hogbatch.kernels.cpu import dense, dropout, losses, rules, sparse
from tests.support.kernel_cases import read_only

activate_backward, bias_gradient = dense.activate_backward, dense.bias_gradient
bound_rows, forget_not_finite = dense.bound_rows, dense.forget_not_finite


def operand_type(params):
    return params


def gather(inputs, rows, out):
    dense.gather(read_only(inputs), rows, out)


def drop(fraction, key, layer, numbers, width, out):
    dropout.drop(fraction, key[0], layer, numbers, width, out)


def dense_forward(x, weights, bias, activation, width, out):
    dense.dense_layer(x, x.shape[1], weights, bias, activation, width, out)


def csr_forward(inputs, rows, weights, bias, activation, width, out):
    sparse.csr_forward(read_only(inputs), rows, weights, bias, activation, width, out)


def loss_gradient(kind, labels, *arguments):
    losses.loss_gradient(kind, read_only(labels), *arguments)


def loss_and_metrics(kind, labels, *arguments):
    losses.loss_and_metrics(kind, read_only(labels), *arguments)


def dense_backward(grad, weights, activation, activated, out):
    space = dense.backward_scratch(len(grad), max(weights.shape))
    dense.pass_all_down(grad, weights, space, out)
    dense.activate_backward(activation, activated, out)


def scale(fraction, grad):
    dense.scale(np.float32(fraction), grad)


def csr_bound_rows(kind, hyper, inputs, rows, grad):
    sparse.csr_bound_rows(kind, hyper, len(rows), read_only(inputs), rows, grad)


def weight_gradient(x, grad, out, bias):
    dense.transposed_product(x, grad, out)
    if bias.size:
        dense.bias_gradient(grad, bias)


def step(kind, hyper, gradient, slots, weights):
    first, second = (slot.reshape(-1) for slot in slots)
    rules.step_row(kind, hyper, gradient.reshape(-1), first, second, weights.reshape(-1))


def csr_scratch(features, width):
    return np.full(features, -1, np.int32)


def csr_step(kind, hyper, inputs, rows, grad, scratch, slots, weights):
    stored = int((inputs.indptr[rows + 1] - inputs.indptr[rows]).sum())
    links = Links(scratch, *(np.empty(stored, np.int32) for _ in range(3)))
    sparse.step_linked(kind, hyper, read_only(inputs), rows, grad, links, slots, weights)
