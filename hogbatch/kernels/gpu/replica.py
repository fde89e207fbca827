"""A replica's exchange with the shared parameters, on the device; see `ReplicaKernels`."""

from hogbatch.kernels.gpu.launch import THREADS, kernel, over_cells, over_rows

_take = kernel("replica", "take")
_rejoin = kernel("replica", "rejoin")
_add = kernel("replica", "add")
_find_touched = kernel("sparse", "find_touched")
_unmark = kernel("sparse", "unmark")
_take_rows = kernel("replica", "take_rows")
_rejoin_rows = kernel("replica", "rejoin_rows")
_add_rows = kernel("replica", "add_rows")


def take(params, base, change, finite):
    over_cells(_take, params.size, params, params.size, base, change, finite)


def rejoin(pulled, params, base):
    over_cells(_rejoin, params.size, pulled, params.size, params, base)


def add(fraction, change, shared):
    over_cells(_add, change.size, float(fraction), change, change.size, shared)


def find_rows(inputs, rows, head, touched, found):
    found.fill(0)
    arrays = inputs.indptr, inputs.indices, rows, head, touched, found
    over_rows(_find_touched, len(rows), THREADS, *arrays)
    over_cells(_unmark, touched.size, touched, found, head)


def take_rows(touched, found, params, base, change, finite):
    width = params.shape[1]
    over_cells(_take_rows, params.size, touched, found, width, params, base, change, finite)


def rejoin_rows(touched, found, shared, params, base):
    over_cells(_rejoin_rows, params.size, touched, found, params.shape[1], shared, params, base)


def add_rows(fraction, touched, found, change, shared):
    width = shared.shape[1]
    over_cells(_add_rows, shared.size, float(fraction), touched, found, width, change, shared)
