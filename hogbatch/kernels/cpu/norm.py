"""Layer normalisation; see the operations of these names in `kernels.reference_backbone`."""

import numpy as np

from hogbatch.jit import kernel
from hogbatch.kernels.contract import LEAST_VARIANCE
from hogbatch.kernels.cpu.dense import activate_backward, activate_rest, floor_of

__all__ = ["activate_backward", "normalise", "normalise_backward"]  # of LayerNormalisation


@kernel
def normalise(x, tensors, kind, kept, out):
    (gain, bias), (normal, inverse) = tensors, kept
    (rows, channels), floor, one = x.shape, np.float32(floor_of(kind)), np.float32(1.0)
    fraction = np.float32(1.0 / channels)
    for n in range(rows):
        total = squares = np.float32(0.0)
        for c in range(channels):
            total += x[n, c]
        mean = total * fraction
        for c in range(channels):
            squares += (x[n, c] - mean) * (x[n, c] - mean)
        inverse[n] = factor = one / np.sqrt(squares * fraction + np.float32(LEAST_VARIANCE))
        for c in range(channels):
            normal[n, c] = (x[n, c] - mean) * factor
        for c in range(channels):
            value = (one + gain[c]) * normal[n, c] + bias[c]
            out[n, c] = floor if value < floor else value  # nan stays nan
    activate_rest(kind, channels, out)


@kernel
def normalise_backward(kept, tensors, grad, gradients, below):
    (normal, inverse), (gain, _), (gain_gradient, bias_gradient) = kept, tensors, gradients
    (rows, channels), one = grad.shape, np.float32(1.0)
    fraction = np.float32(1.0 / channels)
    gain_gradient[:] = bias_gradient[:] = np.float32(0.0)
    for n in range(rows):
        total = product = np.float32(0.0)
        for c in range(channels):
            change = grad[n, c] * (one + gain[c])
            total += change
            product += change * normal[n, c]
        mean, slope = total * fraction, product * fraction
        for c in range(channels):
            gain_gradient[c] += grad[n, c] * normal[n, c]
            bias_gradient[c] += grad[n, c]
        for c in range(channels):
            change = grad[n, c] * (one + gain[c]) - mean - slope * normal[n, c]
            below[n, c] = change * inverse[n]
