"""Losses with their gradients and metrics: one block per row, or one thread for few scores."""

from hogbatch.kernels.contract import LABEL_LISTS, unsmoothed
from hogbatch.kernels.gpu.dense import NARROW
from hogbatch.kernels.gpu.launch import kernel, operand_kernel, over_cells, over_rows

_loss_gradient = operand_kernel("losses", "loss_gradient")
_narrow_loss_gradient = operand_kernel("losses", "narrow_loss_gradient")
_loss_and_metrics = kernel("losses", "loss_and_metrics")


def loss_gradient(kind, labels, rows, numbers, width, scores, grad, totals):
    (batch, stored), operand = scores.shape, grad.dtype.name
    arguments = rows, numbers, batch, width, stored, scores, grad, totals
    kind, smoothing = unsmoothed(kind)
    if stored <= NARROW and kind not in LABEL_LISTS:
        own = labels.values, labels.weights, len(labels.weights)
        over_cells(_narrow_loss_gradient[operand], batch, kind, smoothing, *own, *arguments)
    else:
        own = *labels, len(labels.weights)
        over_rows(_loss_gradient[operand], batch, stored, kind, smoothing, *own, *arguments)


def loss_and_metrics(kind, labels, rows, width, scores, totals):
    batch, stored = scores.shape
    (kind, _), own = unsmoothed(kind), (*labels, len(labels.weights))
    over_rows(_loss_and_metrics, batch, stored, kind, *own, rows, width, stored, scores, totals)
