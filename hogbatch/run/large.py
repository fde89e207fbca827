"""Data larger than memory: encoded in pieces into a file on disk, which the processes map."""

import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from hogbatch.config.effect import changed
from hogbatch.config.flags import dashed
from hogbatch.config.sets import SetName
from hogbatch.config.train import TrainConfig
from hogbatch.data.batch import Examples
from hogbatch.data.cache import MIN_FREE_BYTES
from hogbatch.data.digest import of_arrays
from hogbatch.data.large import load_in_pieces
from hogbatch.data.load import LoadedData
from hogbatch.data.order import Window
from hogbatch.data.raw import ReadOptions
from hogbatch.data.readers import LargeFile, large_file
from hogbatch.data.sizes import SetSizes
from hogbatch.data.source import is_standard_input
from hogbatch.errors import UsageError
from hogbatch.machine.allocator import return_freed_memory
from hogbatch.machine.budget import available, byte_size
from hogbatch.model.footprint import PROCESS, Parts, describe, total
from hogbatch.store import dataset
from hogbatch.store.layout import arrange
from hogbatch.store.paging import unmap_regularly
from hogbatch.store.segment import Segment

GROWTH: Final = 2  # bytes of memory for a byte of the rows as read, while they are encoded
LARGEST_EXPANSION: Final = 32  # bytes of the rows as read for a byte of a file
WINDOWS: Final = 8  # of training rows in the memory of a run, of which two are used
BLOCKS: Final = 512  # in a window, at least; docs/data.md has the loss with 64
BLOCK_BYTES: Final = 1 << 20  # of a block, at most
# The settings with which the rows are trained on; others need all of them in memory.
SUITABLE: Final[Mapping[str, Any]] = {"members": 1, "label_vectors": "off", "nearest_rows": "off"}
UNSUITABLE: Final = ("group", "time", "sample_weight", "class_weight", "init", *SUITABLE)


@dataclass(frozen=True, kw_only=True)
class MappedData(LoadedData):
    """Data whose rows are in a segment on disk."""

    segment: Segment
    memory: int  # bytes that the run may use
    mean_square: float  # of the sample


def larger_than_memory(config: TrainConfig, options: ReadOptions) -> LargeFile | None:
    """DATA, if its rows do not fit into memory and can be read in pieces."""
    path = Path(config.data)
    if is_standard_input(path) or config.cluster is not None or not path.exists():
        return None
    free = _memory(config) - 2 * PROCESS
    if not path.is_dir() and GROWTH * LARGEST_EXPANSION * path.stat().st_size < free:
        return None
    large = large_file(path, options)
    return large if large and large.rows and GROWTH * large.bytes > free else None


def _memory(config: TrainConfig) -> int:
    return available().size if config.memory is None else config.memory


def load_mapped(
    config: TrainConfig, large: LargeFile, directory: Path | None, **settings: Any
) -> MappedData:
    """Encode the rows into a file in `directory`; `settings` are those of `data.load.load`.

    UsageError if a setting needs all rows in memory, or if there is no space on a disk.
    """
    for name in changed(config, UNSUITABLE):
        if getattr(config, name) != SUITABLE.get(name):
            raise UsageError(
                f"--{dashed(name)} needs all rows in memory, but those of {large.source} are "
                "larger (--memory): leave it out"
            )
    if directory is None:
        raise UsageError(
            f"--data-cache off: the rows of {large.source} are larger than memory (--memory), and "
            "are kept on disk: give a directory"
        )
    if (memory := _memory(config)) < PROCESS:  # too little for pieces, too
        least = f"more than the {byte_size(PROCESS)} of a process"
        raise UsageError(f"--memory {byte_size(memory)}: expected {least}")
    pieces = load_in_pieces(large, memory, **settings)
    try:
        os.makedirs(directory, exist_ok=True)
        return _mapped(next(pieces), pieces, large, directory, memory)
    except OSError as error:
        raise UsageError(
            f"cannot write the rows of {large.source} to {directory}: {error.strerror}; give "
            "another directory with --data-cache"
        ) from None


def _mapped(
    sample: LoadedData, rest: Iterator[LoadedData], large: LargeFile, directory: Path, memory: int
) -> MappedData:
    known = {each.name: getattr(sample, each.name) for each in fields(LoadedData)}
    features, mean_square = sample.train.features, sample.mean_square
    most = {name: _most(sample, sizes, large) for name, sizes in sample.set_sizes.items()}
    layout, window = arrange(dataset.fields(most)), _window(sample, memory)
    segment = Segment.on_disk(directory, layout, window)
    sizes, digests = list[Mapping[SetName, SetSizes]](), list[tuple[str, int]]()

    def sets(data: LoadedData) -> Mapping[SetName, Examples]:
        if shutil.disk_usage(directory).free < MIN_FREE_BYTES:
            raise OSError(errno.ENOSPC, "the disk is nearly full")
        return_freed_memory()
        sizes.append(data.set_sizes)
        digests.append((data.fingerprint, data.skipped))
        return data.sets

    every = map(sets, chain([sample], rest))
    del sample, known["sets"], known["with_values"]  # of the sample only
    dataset.fill(segment, every)
    whole = {
        name: SetSizes.sum([each[name] for each in sizes if name in each], features)
        for name in most
    }
    segment.shorten(arrange(dataset.fields(whole)))
    unmap_regularly(segment)
    rows, own = (sum(size.rows for size in each.values()) for each in (whole, sizes[0]))
    note = (
        f"{large.source}: {rows:,} rows are larger than memory (--memory {byte_size(memory)}): "
        f"encoded like a sample of {own:,} of them, and kept on disk"
    )
    known |= {
        "sets": dataset.sets_of(segment, features),
        "fingerprint": of_arrays(repr((window, digests)), ()).hexdigest(),
        "skipped": sum(skipped for _, skipped in digests),
        "notes": (*known["notes"], note),
    }
    return MappedData(**known, segment=segment, memory=memory, mean_square=mean_square)


def _window(sample: LoadedData, memory: int) -> Window:
    row, most = max(1, sample.train.nbytes // sample.train.rows), memory // WINDOWS
    block = max(1, min(BLOCK_BYTES, most // BLOCKS) // row)
    rows = max(1, most // (row * block)) * block
    return Window(block, rows, rows * row)


def _most(sample: LoadedData, sizes: SetSizes, large: LargeFile) -> SetSizes:
    """Upper bounds of the sizes of a set; what is not used of them takes no space on disk."""
    rows, stored = sizes.rows + (large.rows or 0), 0
    if sample.table is not None:
        stored = rows * sum(column.encoder.stored for column in sample.table.columns)
    return replace(
        sizes,
        rows=rows,
        stored=sizes.stored + stored + large.bytes if sizes.sparse else 0,
        listed=sizes.listed + large.bytes if sizes.lists else 0,
    )


def expect_within(memory: int, needed: Parts, data: LoadedData) -> None:
    """UsageError unless a run is within `memory` bytes: what it needs besides, and its rows."""
    rows = sum(each.nbytes for each in data.sets.values())
    if isinstance(data, MappedData):  # two windows, a quarter of the memory
        rows = total(needed) // 3
    parts = {**needed, "data": rows}
    if total(parts) > memory:
        raise UsageError(
            f"--memory {byte_size(memory)}: expected at least {byte_size(total(parts))} for this "
            f"run ({describe(parts)}): give more, or use a smaller network (--hidden)"
        )
