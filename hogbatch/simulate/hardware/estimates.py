"""The figures that a file leaves out: scaled from another description, or from a data sheet.

`scaled` and `estimated` complete a table that was read from TOML; `description.py` checks the
result. Both raise msgspec.ValidationError for what they need and the table does not have.
"""

from typing import Annotated, Any, Final

from msgspec import Meta, Struct, ValidationError, convert

Table = dict[str, Any]
Positive = Annotated[float, Meta(gt=0, le=1e300)]  # finite

DATA_SHEET: Final = ("peak_flops", "peak_memory_speed", "peak_link_speed", "multiprocessors")
ENDINGS: Final = {"_seconds": "seconds", "_speed": "speeds"}  # of figures, with their common factor

# Fitted to 36 batches on an NVIDIA H200 in float32 (docs/servers.md), and rounded.
FLOPS: Final = 0.7  # fraction of the peak that large float32 products reach
MEMORY: Final = 0.65  # fraction of the peak that reads and writes of device memory reach
LINK: Final = 0.64  # fraction of the peak that copies between host and device reach
MAPPED: Final = 1.6  # speed of kernels that read and write the host's memory, relative to copies
FILL_CELLS: Final = 333  # for each multiprocessor
BYTES: Final = {  # of device memory that take as long
    "score_seconds": 5,
    "value_seconds": 1_270,
    "cell_seconds": 23,  # forward and gradient
    "touched_seconds": 112,
}
USUAL: Final = {  # figures that differ little between GPUs
    "step_seconds": 4e-6,  # of the work on the host for each batch
    "launch_seconds": 2.9e-6,  # of a node of a CUDA graph that waits for another one
    "link_seconds": 6e-5,  # of a copy that is waited for
}


class DataSheet(Struct):
    """The data sheet of a GPU, and measured speeds, if there are any."""

    peak_flops: Positive
    peak_memory_speed: Positive
    peak_link_speed: Positive
    multiprocessors: Positive
    memory_speed: Positive | None = None
    link_speed: Positive | None = None


def scaled(table: Table, base: Table, where: str) -> Table:
    """Return a section with the figures of `base`, the same section of another description.

    Figures that `table` has are kept, and the others are multiplied by its `factors`. `where` is
    the name of the section in error messages.
    """
    if not isinstance(table, dict):
        raise ValidationError(f"{where} must be a table; got {table!r}")
    own = dict(table)
    factors = convert(own.pop("factors", {}), dict[str, Positive])
    figures = {key for key, value in base.items() if isinstance(value, float)}
    if unknown := factors.keys() - figures - {_group(key) for key in figures}:
        raise ValidationError(
            f"{where}.factors.{min(unknown)} is unknown; expected one of "
            f"{', '.join(ENDINGS.values())}, {', '.join(sorted(figures))}"
        )
    for key, value in base.items():
        if key == "sources":
            own[key] = value | convert(own.get(key, {}), dict[str, str])
        elif isinstance(value, dict):
            own[key] = scaled(own.get(key, {}), value, f"{where}.{key}")
        elif key not in own:
            factor = factors.get(key, factors.get(_group(key), 1.0))
            own[key] = value * factor if key in figures else value
    return own


def _group(figure: str) -> str:
    """The name of the factor of all figures with this ending."""
    return next((group for ending, group in ENDINGS.items() if figure.endswith(ending)), "")


def estimated(table: Table) -> Table:
    """Return the section of a GPU with estimates of the figures that it leaves out.

    They follow from the values of its data sheet; a section without any of these is returned as it
    is.
    """
    if not any(key in table for key in DATA_SHEET):
        return table
    sheet = convert(table, DataSheet)
    speed = sheet.memory_speed or MEMORY * sheet.peak_memory_speed
    copies = sheet.link_speed or LINK * sheet.peak_link_speed
    estimates = {
        "flops": FLOPS * sheet.peak_flops,
        "fill_cells": FILL_CELLS * sheet.multiprocessors,
        "memory_speed": speed,
        "exchange_speed": speed,
        **{key: nbytes / speed for key, nbytes in BYTES.items()},
        "link_speed": copies,
        "mapped_speed": MAPPED * copies,
        **USUAL,
    }
    return estimates | {key: value for key, value in table.items() if key not in DATA_SHEET}
