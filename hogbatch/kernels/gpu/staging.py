"""Gathering the rows of a batch from a set in device memory or in mapped host memory.

See `StagingKernels`. All cells have 4 bytes.
"""

from hogbatch.kernels.gpu.launch import kernel, over_cells

THREADS = 1024  # per block; also the threads of `add_lengths`
# Enough to keep the link busy: each thread has up to 64 bytes in flight, 1 MB in total; a link of
# 55 GB/s with a latency of 2 µs needs 110 KB. The other multiprocessors remain free for training.
MAX_BLOCKS = 16
CHUNK = 4  # cells that a thread loads at once
LANES = 8  # threads that read a line of 128 bytes together

_copy_rows = kernel("staging", "copy_rows")
_copy_cells = kernel("staging", "copy_cells")
_find_spans = kernel("staging", "find_spans")
_add_lengths = kernel("staging", "add_lengths")


def copy_rows(source, rows, out):
    width = out.size // max(1, len(out))
    chunks = -(-width // CHUNK)
    lanes = min(1 << max(0, chunks - 1).bit_length(), LANES)  # fewer for narrow rows
    if out.size > 0:
        _over_groups(_copy_rows, len(rows), lanes, source, rows, len(rows), width, lanes, out)


def copy_cells(source, starts, indptr, out):
    batch = len(starts)
    _over_groups(_copy_cells, batch, LANES, source, starts, indptr, batch, LANES, out)


def select_rows(indptr, rows, starts, out, stored):
    over_cells(_find_spans, len(rows), indptr, rows, len(rows), starts, out[1:])
    _add_lengths((1,), (THREADS,), (len(rows), out, stored))


def _over_groups(function, rows, lanes, *arguments):
    """Launch with `lanes` threads per row, which process several rows in turn."""
    blocks = min(-(-rows * lanes // THREADS), MAX_BLOCKS)
    function((blocks,), (THREADS,), arguments)
