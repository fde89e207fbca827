"""Pooling of the values of each channel of a picture [height, width, channels]."""

from typing import NamedTuple

import numpy as np

from hogbatch.jit import kernel


class Windows(NamedTuple):
    """The sizes of a pooling layer."""

    width: int  # of the input
    channels: int
    out_height: int
    out_width: int
    rows: int  # of a window
    columns: int
    mean: bool


@kernel
def pool(x, windows, out):
    """out[B, n] = the largest value, or the mean, of each window of x[B, m]."""
    channels, fraction = windows.channels, np.float32(1.0 / (windows.rows * windows.columns))
    for b in range(x.shape[0]):
        for window in range(windows.out_height * windows.out_width):
            result = out[b, window * channels : (window + 1) * channels]
            for cell in range(windows.rows * windows.columns):
                values = x[b, first_channel(windows, window, cell) :]
                if cell == 0:
                    for c in range(channels):
                        result[c] = values[c]
                elif windows.mean:
                    for c in range(channels):
                        result[c] += values[c]
                else:  # nan stays nan
                    for c in range(channels):
                        result[c] = result[c] if result[c] > values[c] else values[c]
            if windows.mean:
                for c in range(channels):
                    result[c] *= fraction


@kernel
def pass_down(x, windows, out, grad, below):
    """below[B, m] = the gradient of the inputs, from out[B, n] and its gradient grad[B, n].

    The first of equal largest values has the gradient of their window; `grad` is overwritten.
    """
    channels, fraction = windows.channels, np.float32(1.0 / (windows.rows * windows.columns))
    zero, used = np.float32(0.0), windows.out_height * windows.rows * windows.width * channels
    for b in range(grad.shape[0]):
        rest = 0 if windows.out_width * windows.columns < windows.width else used
        for n in range(rest, below.shape[1]):
            below[b, n] = zero
        for window in range(windows.out_height * windows.out_width):
            part = slice(window * channels, (window + 1) * channels)
            result, change = out[b, part], grad[b, part]
            for cell in range(windows.rows * windows.columns):
                first = first_channel(windows, window, cell)
                values, target = x[b, first:], below[b, first:]
                if windows.mean:
                    for c in range(channels):
                        target[c] = change[c] * fraction
                else:
                    for c in range(channels):
                        here = values[c] == result[c]
                        target[c] = change[c] if here else zero
                        change[c] = zero if here else change[c]


@kernel
def first_channel(windows, window, cell):
    """The position of the first channel of a cell of a window."""
    row = window // windows.out_width * windows.rows + cell // windows.columns
    column = window % windows.out_width * windows.columns + cell % windows.columns
    return (row * windows.width + column) * windows.channels
