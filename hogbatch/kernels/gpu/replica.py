"""A replica's exchange with the shared parameters, on the device; see `ReplicaKernels`."""

from hogbatch.kernels.gpu.launch import WARP, kernel, over_batch, over_cells, over_touched

_take = kernel("replica", "take")
_rejoin = kernel("replica", "rejoin")
_add = kernel("replica", "add")
_add_damped = kernel("replica", "add_damped")
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


def add_damped(scale, fraction, seen, change, shared):
    arguments = float(scale), float(fraction), seen, change.size, change, shared
    over_cells(_add_damped, change.size, *arguments)


def find_rows(inputs, rows, head, touched, found):
    found.fill(0)
    batch = len(rows)
    arrays = inputs.indptr, inputs.indices, rows, batch, head, touched, found
    over_batch(_find_touched, batch, WARP, *arrays)
    over_touched(_unmark, touched.size, 1, touched, found, head)


def take_rows(touched, found, params, base, change, finite):
    features, width = params.shape
    over_touched(_take_rows, features, width, touched, found, width, params, base, change, finite)


def rejoin_rows(touched, found, shared, params, base):
    features, width = params.shape
    over_touched(_rejoin_rows, features, width, touched, found, width, shared, params, base)


def add_rows(fraction, touched, found, change, shared):
    features, width = shared.shape
    arguments = float(fraction), touched, found, width, change, shared
    over_touched(_add_rows, features, width, *arguments)
