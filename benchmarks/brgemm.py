"""Compares the three products of a dense layer with the peak of the processor.

forward  Y[m, h] = X[m, k] W[k, h]      backward  E[m, k] = D[m, h] W[k, h].T
update   W[k, h] += X[m, k].T D[m, h]

Runs on one thread. Weights cycle through several layers, as in training, so that they come from the
same level of the memory hierarchy. The same products are measured in OpenBLAS, through NumPy.

    scripts/bench brgemm --json out.json
    scripts/bench brgemm --shapes 54x512 --rows 16 --repetitions 3

Prints one line per shape, number of rows and pass: the fractions of the peak, GFLOP/s, and the
ratio to OpenBLAS.
"""

import os
from collections.abc import Callable
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy is loaded

import numpy as np

from benchmarks.common import arguments, report
from benchmarks.common.peak import aligned, fraction_of_peak
from hogbatch.jit import kernel
from hogbatch.kernels.cpu import brgemm
from hogbatch.kernels.cpu.brgemm import matrix, submatrix
from hogbatch.kernels.cpu.dense import BLOCK_ROWS
from hogbatch.kernels.cpu.intrinsics import address
from hogbatch.kernels.cpu.tiles import ADD, STORE, Epilogue, Matrix
from hogbatch.store.layout import stored_width

SHAPES = ("512x512", "300x512", "54x512", "512x983", "137x75")
PASSES = ("forward", "backward", "update")
LAYERS = 3
FLOPS = 2e8  # of one repetition, approximately

Work = Callable[[], None]


@kernel
def forward(x, weights, y, sizes, times):
    m, k, h, layers = sizes
    for n in range(times):
        here = submatrix(matrix(weights), n % layers * k, 0)
        brgemm.multiply(m, h, k, matrix(x), here, matrix(y), Epilogue(STORE, 0, 0.0))


@kernel
def backward(d, weights, e, packed, product, sizes, times):
    m, k, h, layers = sizes
    many = brgemm.packed_rows(m)
    turned, scratch = Matrix(address(packed), many, 1), Matrix(address(product), many, 1)
    for n in range(times):
        brgemm.transpose(many, h, matrix(d), turned)
        for first in range(0, k, BLOCK_ROWS):
            rows = min(BLOCK_ROWS, k - first)
            here = submatrix(matrix(weights), n % layers * k + first, 0)
            below = submatrix(matrix(e), 0, first)
            brgemm.multiply_transposed(m, rows, h, matrix(d), turned, here, below, scratch)


@kernel
def update(x, d, weights, sizes, times):
    m, k, h, layers = sizes
    left = brgemm.transposed(matrix(x))
    for n in range(times):
        for first in range(0, k, BLOCK_ROWS):
            rows = min(BLOCK_ROWS, k - first)
            here = submatrix(matrix(weights), n % layers * k + first, 0)
            columns, add = submatrix(left, first, 0), Epilogue(ADD, 0, 0.0)
            brgemm.multiply(rows, h, m, columns, matrix(d), here, add)


class ProductArrays:
    """Arrays of one shape, stored as in the model: padded to whole vectors."""

    def __init__(self, m: int, k: int, h: int) -> None:
        random = np.random.default_rng(0)
        self.m, self.k, self.h = m, k, h
        columns = stored_width(h)
        self.weights = aligned(padded(random, LAYERS * k, h, columns))
        self.x = aligned(padded(random, m, k, stored_width(k))) * np.float32(1e-9)
        self.x = aligned(self.x)
        self.d = aligned(padded(random, m, h, columns))
        self.y, self.e = aligned(np.zeros((m, columns))), aligned(np.zeros((m, stored_width(k))))
        self.packed, self.product = (aligned(np.zeros(n * m)) for n in (columns, BLOCK_ROWS))
        self.flops = 2 * m * k * h
        self.times = max(1, int(FLOPS / self.flops))

    def ours(self, which: str) -> Work:
        """The compiled product."""
        # products of `h` columns if that is the stored width, else of the padded width
        sizes = (self.m, self.k, self.weights.shape[1], LAYERS)
        if which == "forward":
            return lambda: forward(self.x, self.weights, self.y, sizes, self.times)
        if which == "backward":
            scratch = self.packed, self.product
            return lambda: backward(self.d, self.weights, self.e, *scratch, sizes, self.times)
        return lambda: update(self.x, self.d, self.weights, sizes, self.times)

    def blas(self, which: str) -> Work:
        """NumPy's product; `update` does not add it to the weights."""
        weights, x, d, y, e, gradient = self._unpadded()

        def work() -> None:
            for n in range(self.times):
                layer = weights[n % LAYERS]
                if which == "forward":
                    np.dot(x, layer, out=y)
                elif which == "backward":
                    np.dot(d, layer.T, out=e)
                else:
                    np.dot(x.T, d, out=gradient)

        return work

    def _unpadded(self) -> tuple[list[Any], ...]:
        cut = [self.weights[n * self.k : (n + 1) * self.k, : self.h] for n in range(LAYERS)]
        weights = [aligned(layer) for layer in cut]
        x, d = aligned(self.x[:, : self.k]), aligned(self.d[:, : self.h])
        y, e = aligned(self.y[:, : self.h]), aligned(self.e[:, : self.k])
        return weights, x, d, y, e, aligned(np.zeros((self.k, self.h)))


def padded(random: np.random.Generator, height: int, width: int, stored: int) -> Any:
    """Random numbers, padded with zero columns to the stored width."""
    array = np.zeros((height, stored), np.float32)
    array[:, :width] = random.normal(size=(height, width))
    return array


def measure(shape: str, m: int, which: str, repetitions: int) -> dict[str, Any]:
    """One result: fractions of the peak for a shape, number of rows and pass."""
    k, h = map(int, shape.split("x"))
    case = ProductArrays(m, k, h)
    line: dict[str, Any] = {"shape": shape, "rows": m, "pass": which}
    for name, work in (("ours", case.ours(which)), ("openblas", case.blas(which))):
        fraction, gflops = fraction_of_peak([work], case.flops * case.times, repetitions)
        line[name], line[f"{name}_gflops"] = round(fraction, 3), round(gflops, 1)
    line["over_openblas"] = round(line["ours_gflops"] / line["openblas_gflops"], 2)
    return line


def main() -> None:
    """Measure and print."""
    parser = arguments.parser("brgemm", __doc__)
    add = parser.add_argument
    add(
        "--shapes",
        type=lambda text: text.split(","),
        default=list(SHAPES),
        metavar="KxH,...",
        help=f"shapes of the weights (default: {','.join(SHAPES)})",
    )
    add(
        "--rows",
        type=arguments.positive_list,
        default=[4, 8, 16, 32, 64],
        metavar="M,...",
        help="rows of a batch (default: 4,8,16,32,64)",
    )
    arguments.add_number(parser, "--repetitions", 15, "measurements of each product")
    arguments.add_json(parser)
    options = parser.parse_args()
    results = []
    for shape in options.shapes:
        for m in options.rows:
            for which in PASSES:
                results.append(measure(shape, m, which, options.repetitions))
                print(results[-1], flush=True)
    report.write(options.json, results)


if __name__ == "__main__":
    main()
