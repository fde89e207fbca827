"""Losses with their gradients and metrics, one block per row."""

from hogbatch.kernels.gpu.launch import kernel, operand_kernel, over_rows

_loss_gradient = operand_kernel("losses", "loss_gradient")
_loss_and_metrics = kernel("losses", "loss_and_metrics")


def loss_gradient(kind, labels, rows, numbers, width, scores, grad, totals):
    (batch, stored), function = scores.shape, _loss_gradient[grad.dtype.name]
    arguments = kind, *labels, rows, numbers, batch, width, stored
    over_rows(function, batch, stored, *arguments, scores, grad, totals)


def loss_and_metrics(kind, labels, rows, width, scores, totals):
    batch, stored = scores.shape
    over_rows(_loss_and_metrics, batch, stored, kind, *labels, rows, width, stored, scores, totals)
