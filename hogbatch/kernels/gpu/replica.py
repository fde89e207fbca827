"""A replica's exchange with the shared parameters, on the device; see `ReplicaKernels`."""

from hogbatch.kernels.gpu.launch import (
    LINK_THREADS,
    WARP,
    kernel,
    over_batch,
    over_cells,
    over_link,
    over_touched,
)

_hand_over = kernel("replica", "hand_over")
_drain = kernel("replica", "drain")
_add = kernel("replica", "add")
_find_touched = kernel("sparse", "find_touched")
_unmark = kernel("sparse", "unmark")
_take_rows = kernel("replica", "take_rows")
_rejoin_rows = kernel("replica", "rejoin_rows")
_add_rows = kernel("replica", "add_rows")


def hand_over(pulled, params, base, seen, change, finite):
    size = params.size
    over_cells(_hand_over, size, pulled, size, params, base, seen, change, finite)


def drain(values, out):
    over_cells(_drain, values.size, values, values.size, out)


def add(fraction, scale, seen, change, shared, pulled):
    arguments = float(fraction), float(scale), seen, change, change.size, shared, pulled
    if change.size > 0:
        over_link(_add, LINK_THREADS, *arguments)


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
    width = shared.shape[1]
    packets = width // 4 if width % 4 == 0 else width
    over_link(_add_rows, packets, float(fraction), touched, found, width, change, shared)
