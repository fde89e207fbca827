"""Mini-batch training in plain NumPy, written from the textbook: an oracle that shares no code.

Double precision, dense inputs, real widths, one list of [weights, bias] for each layer.
"""

import numpy as np

SLOPE, LIMIT = 1.0507009873554805, 1.0507009873554805 * 1.6732632423543772  # of SELU
ACTIVATIONS = {  # f(z), and f'(z) from f(z)
    "relu": (lambda z: np.maximum(z, 0), lambda a: a > 0),
    "selu": (
        lambda z: np.where(z > 0, SLOPE * z, LIMIT * np.expm1(np.minimum(z, 0))),
        lambda a: np.where(a > 0, SLOPE, a + LIMIT),
    ),
    "sigmoid": (lambda z: 1 / (1 + np.exp(-z)), lambda a: a * (1 - a)),
    "tanh": (np.tanh, lambda a: 1 - a * a),
}


def logistic_gradient(scores, labels):
    return 1 / (1 + np.exp(-scores)) - labels[:, None]


def softmax_gradient(scores, labels):
    fractions = np.exp(scores)
    fractions /= fractions.sum(axis=1, keepdims=True)
    return fractions - np.eye(scores.shape[1])[labels.astype(int)]


def squared_gradient(scores, labels):
    return scores - labels.reshape(scores.shape)


GRADIENTS = {
    "logistic": logistic_gradient,
    "softmax": softmax_gradient,
    "squared": squared_gradient,
}


def layers_of(tensors):
    """[[weights, bias], ...] in double precision, from tensors by name in the order of layers."""
    parts = [tensor.astype(float) for tensor in tensors.values()]
    return [parts[n : n + 2] for n in range(0, len(parts), 2)]


def gradients(layers, activation, loss, x, labels, row_weights=None):
    """d(mean loss) of every [weights, bias]."""
    forward, slope = ACTIVATIONS[activation]
    outputs = [x]
    for weights, bias in layers[:-1]:
        outputs.append(forward(outputs[-1] @ weights + bias))
    weights, bias = layers[-1]
    delta = GRADIENTS[loss](outputs[-1] @ weights + bias, labels) / len(x)
    if row_weights is not None:
        delta *= row_weights[:, None]
    found = []
    for (weights, _), below in zip(reversed(layers), reversed(outputs), strict=True):
        found.append([below.T @ delta, delta.sum(axis=0)])
        delta = (delta @ weights.T) * slope(below)
    return found[::-1]


class Optimizer:
    """One optimizer's state for one array; `step` counts its updates from 1."""

    def __init__(self, spec, rate, shape):
        self.spec, self.rate = spec, rate
        self.first, self.second = np.zeros(shape), np.zeros(shape)
        self.t = 0

    def step(self, array, gradient):
        self.t += 1
        array -= getattr(self, self.spec.name)(gradient)

    def sgd(self, gradient):
        return self.rate * gradient

    def momentum(self, gradient):
        self.first = self.spec.momentum * self.first + gradient
        return self.rate * self.first

    def adagrad(self, gradient):
        self.first = self.first + gradient**2
        return self.rate * gradient / (np.sqrt(self.first) + self.spec.epsilon)

    def adam(self, gradient):
        """Kingma & Ba 2015, Algorithm 1 with the reordering at the end of section 2."""
        beta1, beta2 = self.spec.momentum, self.spec.beta2
        self.first = beta1 * self.first + (1 - beta1) * gradient
        self.second = beta2 * self.second + (1 - beta2) * gradient**2
        rate = self.rate * np.sqrt(1 - beta2**self.t) / (1 - beta1**self.t)
        return rate * self.first / (np.sqrt(self.second) + self.spec.epsilon)


def train(layers, activation, loss, batches, spec, rate):
    """Train `layers` in place on `batches` of (x[B, F], labels[B]) or (x, labels, weights[B])."""
    optimizers = [[Optimizer(spec, rate, part.shape) for part in layer] for layer in layers]
    for batch in batches:
        found = gradients(layers, activation, loss, *batch)
        for layer, gradient, optimizer in zip(layers, found, optimizers, strict=True):
            for part in range(2):
                optimizer[part].step(layer[part], gradient[part])
