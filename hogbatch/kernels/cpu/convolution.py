"""Convolutions, computed as products of small matrices without a copy of the patches.

Consecutive outputs of a row read consecutive parts of the input, so their patches are the rows of a
matrix whose row stride is that of the input: a row of outputs is a sum of products over the rows
of a filter, kept in registers (Georganas et al. 2020). With dilation, there is such a sum for each
column of a filter, added to the row while it is in the cache. The gradient of the inputs is a
convolution of the gradient, spread by the stride, with the filters turned around. The gradient of
a row of a filter is a sum of products over the rows of outputs of a picture.

Sequences of texts begin with zeros where they are shorter than others. Outputs of windows of such
zeros alone are those of the bias, and are not computed.

Pictures are [height, width, channels], weights [height, width, channels, filters].
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.jit import kernel
from hogbatch.kernels.contract import Floats
from hogbatch.kernels.cpu.brgemm import Terms, sum_of_products, transposed
from hogbatch.kernels.cpu.dense import activate_rest, aligned, floor_of
from hogbatch.kernels.cpu.intrinsics import address
from hogbatch.kernels.cpu.tiles import ACTIVATE, ADD, STORE, Epilogue, Matrix


class Geometry(NamedTuple):
    """The sizes of a convolution, and of its input with the zeros around it."""

    height: int
    width: int
    channels: int
    out_height: int
    out_width: int
    filters: int
    rows: int  # of a filter
    columns: int
    stride: int
    dilation: int
    top: int  # rows of zeros above the input
    left: int
    padded_height: int
    padded_width: int


class ConvolutionScratch(NamedTuple):
    """Memory of one thread; the zeros around pictures stay zero."""

    padded: Floats  # a picture with the zeros around it
    padded_grad: Floats  # its gradient, spread by the stride, with zeros around it
    turned: Floats  # the filters, turned around: [rows, columns, filters, channels]


def reversed_geometry(shape: Geometry) -> Geometry:
    """Return the sizes of the convolution that computes the gradient of the inputs of `shape`."""
    height, width = (shape.rows - 1) * shape.dilation, (shape.columns - 1) * shape.dilation
    return Geometry(
        (shape.out_height - 1) * shape.stride + 1,
        (shape.out_width - 1) * shape.stride + 1,
        shape.filters,
        shape.height,
        shape.width,
        shape.channels,
        shape.rows,
        shape.columns,
        1,
        shape.dilation,
        height - shape.top,
        width - shape.left,
        shape.height + height,
        shape.width + width,
    )


def scratch(shape: Geometry) -> ConvolutionScratch:
    """Allocate for a convolution of `shape`."""
    back = reversed_geometry(shape)
    sizes = (
        shape.padded_height * shape.padded_width * shape.channels,
        back.padded_height * back.padded_width * back.channels,
        shape.rows * shape.columns * shape.channels * shape.filters,
    )
    arrays: list[NDArray[np.float32]] = [aligned(size) for size in sizes]
    for array in arrays:
        array[:] = 0
    return ConvolutionScratch(*arrays)


@kernel
def pad(picture, shape, step, padded):
    """Copy a picture into `padded`, leaving step - 1 cells out between its cells."""
    cells, row = shape.channels, 0
    wide = min(shape.width, shape.padded_width - shape.left) * cells
    adjacent = wide if step == 1 else cells  # floats that stay together
    for y in range(0, min(shape.height, shape.padded_height - shape.top), step):
        target = ((y + shape.top) * shape.padded_width + shape.left) * cells
        for n in range(0, wide, adjacent * step):
            source, out = picture[row + n // step :], padded[target + n :]
            for c in range(adjacent):  # a simple index, so that the loop is vectorised
                out[c] = source[c]
        row += -(-shape.width // step) * cells


@kernel
def zeros_in_front(x, channels):
    """The cells of a sequence x[steps * channels] before the first that is not 0."""
    n = 0
    while n < x.shape[0] and x[n] == 0.0:
        n += 1
    return n // channels


@kernel
def first_output(x, shape):
    """The first output of a sequence, or the last one, that depends on more than zeros in front."""
    zeros = zeros_in_front(x, shape.channels) if shape.height == 1 else 0
    reach = (shape.columns - 1) * shape.dilation - shape.left
    return min(max(0, -(-(zeros - reach) // shape.stride)), shape.out_width - 1)


@kernel
def products(shape, padded, weights, first, out, begin):
    """out[out_height, out_width, filters] from a padded picture; `first`: of the first product.

    Columns before `begin` are not computed.
    """
    together = shape.columns if shape.dilation == 1 else 1  # cells whose patches are adjacent
    depth, groups = together * shape.channels, shape.columns // together
    below = shape.dilation * shape.padded_width * shape.channels
    terms = Terms(depth, shape.rows, below, groups * depth * shape.filters)
    count = shape.out_width - begin
    for y in range(shape.out_height):
        row = address(out) + 4 * (y * shape.out_width + begin) * shape.filters
        target, epilogue = Matrix(row, shape.filters, 1), first
        for j in range(groups):
            cell = (y * shape.padded_width + begin) * shape.stride + j * shape.dilation
            at = address(padded) + 4 * cell * shape.channels
            patches = Matrix(at, shape.stride * shape.channels, 1)
            part = address(weights) + 4 * j * depth * shape.filters
            filters = Matrix(part, shape.filters, 1)
            sum_of_products(count, shape.filters, terms, patches, filters, target, epilogue)
            epilogue = Epilogue(ADD, 0, 0.0)


@kernel
def convolve(x, shape, weights, bias, activation, space, out):
    """out[B, n] = f(convolution of x[B, m] with the weights + bias)."""
    first = Epilogue(ACTIVATE, address(bias), -np.inf)
    floor = np.float32(floor_of(activation))
    for b in range(x.shape[0]):
        pad(x[b], shape, 1, space.padded)
        begin = first_output(x[b], shape)
        products(shape, space.padded, weights, first, out[b], begin)
        for n in range(begin * shape.filters):
            out[b, n] = bias[n % shape.filters]
        for n in range(out.shape[1]):
            out[b, n] = max(floor, out[b, n])
    activate_rest(activation, out.shape[1], out)


@kernel
def add_gradients(x, shape, grad, space, weights, bias):
    """Add the gradients of the weights and of the bias; grad[B, n] are those before activation."""
    together = shape.columns if shape.dilation == 1 else 1
    depth, groups = together * shape.channels, shape.columns // together
    filters, add = shape.filters, Epilogue(ADD, 0, 0.0)
    below = shape.stride * shape.padded_width * shape.channels
    for b in range(x.shape[0]):
        pad(x[b], shape, 1, space.padded)
        begin = first_output(x[b], shape)
        right = Matrix(address(grad[b]) + 4 * begin * filters, filters, 1)
        terms = Terms(shape.out_width - begin, shape.out_height, below, shape.out_width * filters)
        for n in range(grad.shape[1] // filters):
            for f in range(filters):
                bias[f] += grad[b, n * filters + f]
        for i in range(shape.rows):
            for j in range(groups):
                above = i * shape.dilation * shape.padded_width + j * shape.dilation
                cell = above + begin * shape.stride
                start = address(space.padded) + 4 * cell * shape.channels
                patches = transposed(Matrix(start, shape.stride * shape.channels, 1))
                part = address(weights) + 4 * (i * groups + j) * depth * filters
                target = Matrix(part, filters, 1)
                sum_of_products(depth, filters, terms, patches, right, target, add)


@kernel
def turn(shape, weights, turned):
    """turned[rows, columns, filters, channels] = the filters, turned by 180 degrees."""
    cells = shape.rows * shape.columns
    block = shape.channels * shape.filters
    for cell in range(cells):
        source, target = cell * block, (cells - 1 - cell) * block
        for c in range(shape.channels):
            for f in range(shape.filters):
                value = weights[source + c * shape.filters + f]
                turned[target + f * shape.channels + c] = value


@kernel
def pass_down(shape, back, weights, grad, space, x, padded, below):
    """below[B, m] = the gradient of the inputs; `back` is the `reversed_geometry` of `shape`.

    If x[B, m] is `padded`, its zeros in front have no gradient.
    """
    turn(shape, weights, space.turned)
    store = Epilogue(STORE, 0, 0.0)
    for b in range(grad.shape[0]):
        pad(grad[b], back, shape.stride, space.padded_grad)
        zeros = zeros_in_front(x[b], shape.channels) if padded and shape.height == 1 else 0
        begin = min(zeros, shape.width - 1)
        products(back, space.padded_grad, space.turned, store, below[b], begin)
        below[b, : begin * shape.channels] = 0.0
