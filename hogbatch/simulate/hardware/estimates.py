"""The figures that a file leaves out: scaled from another description, or from a data sheet.

`scaled` and `estimated` complete a table that was read from TOML; `description.py` checks the
result. `where` is the beginning of error messages: the file and the section, as in
"mine.toml: key cpu.".
"""

import math
from typing import Any, Final, NoReturn

from hogbatch.errors import UsageError

Table = dict[str, Any]

ENDINGS: Final = {"seconds": "_seconds", "speeds": "_speed"}  # figures with one factor

DATA_SHEET: Final = ("peak_flops", "peak_memory_speed", "peak_link_speed", "multiprocessors")
FLOPS: Final = 0.72  # fraction of the peak that large float32 products reach
MEMORY: Final = 0.85  # fraction of the peak that reads and writes of device memory reach
LINK: Final = 0.8  # fraction of the peak that copies between host and device reach
MAPPED: Final = 0.8  # speed of kernels on the host's memory, relative to copies
FILL_CELLS: Final = 2000  # for each multiprocessor
BYTES: Final = {  # of device memory that are read or written
    "score_seconds": 8,
    "value_seconds": 12,
    "cell_seconds": 8,  # forward and gradient
    "touched_seconds": 16,
}
USUAL: Final = {  # figures that differ little between GPUs
    "step_seconds": (5e-6, "of the work on the host for each batch"),
    "launch_seconds": (2e-6, "of a node of a CUDA graph"),
    "link_seconds": (1e-5, "of a copy that is waited for"),
    "host_add_speed": (10e9, "of NumPy on a recent core"),
}


def scaled(table: Table, base: Table, name: str, where: str) -> Table:
    """Return a section with the figures of `base`, the same section of the description `name`.

    Figures that `table` has are kept, and the others are multiplied by its `factors`. Each of those
    gets a text in `sources`. Raises UsageError for factors that are not valid.
    """
    factors = _factors(table, base, where)
    scaled_table = {key: value for key, value in table.items() if key != "factors"}
    sections = {key for key, value in base.items() if isinstance(value, dict)} - {"sources"}
    if not factors and scaled_table.keys() <= sections:
        scaled_table["source"] = f"{name}: {base['source']}"
    texts = scaled_table["sources"] = _texts(table, where)
    for key in base:
        if key in {"source", "sources"}:
            continue
        if key in sections:
            inner = scaled_table.get(key, {})
            is_table = isinstance(inner, dict)
            scaled_table[key] = (
                scaled(inner, base[key], name, f"{where}{key}.") if is_table else inner
            )
        elif key in factors:
            scaled_table[key] = base[key] * factors[key]
            reason = texts.get(key) or scaled_table.get("source")
            texts[key] = f"{name}, times {factors[key]:g}: {reason}"
        elif key not in scaled_table:
            scaled_table[key] = base[key]
            reason = texts.get(key) or base["sources"].get(key) or base["source"]
            texts[key] = f"{name}: {reason}"
    return scaled_table


def _factors(table: Table, base: Table, where: str) -> dict[str, float]:
    """The factor of each figure; one for a single figure takes precedence over one for all."""
    factors = table.get("factors", {})
    if not isinstance(factors, dict):
        refuse(f"{where}factors", "a table with numbers above 0", factors)
    figures = {key: [key] for key, value in base.items() if isinstance(value, float)}
    groups = {
        group: [key for key in figures if key.endswith(end) and key not in table]
        for group, end in ENDINGS.items()
        if any(key.endswith(end) for key in figures)
    }
    members = groups | figures
    for key, factor in factors.items():
        if key not in members:
            raise UsageError(
                f"{where}factors.{key} is unknown; expected one of {', '.join(members)}"
            )
        if key in table:
            raise UsageError(f"{where}factors.{key} contradicts {key}; expected only one of them")
        _positive(factor, f"{where}factors.{key}")
    return {each: factors[key] for key in members if key in factors for each in members[key]}


def estimated(table: Table, where: str) -> Table:
    """Return the section of a GPU with estimates of the figures that it leaves out.

    They follow from the values of its data sheet; a section without any of these is returned as it
    is. Raises UsageError for values of a data sheet that are missing or not valid.
    """
    if not any(key in table for key in DATA_SHEET):
        return table
    for key in DATA_SHEET:
        if key not in table:
            raise UsageError(f"{where}{key} is missing; expected a number above 0")
    flops, memory, link, multiprocessors = (
        _positive(table[key], f"{where}{key}") for key in DATA_SHEET
    )
    found = {key: value for key, value in table.items() if key not in DATA_SHEET}
    texts = found["sources"] = _texts(table, where)

    def estimate(key: str, value: float, text: str) -> float:
        if key not in found:
            found[key] = value
            texts.setdefault(key, f"estimate: {text}")
        return _positive(found[key], f"{where}{key}")

    estimate("flops", FLOPS * flops, f"{FLOPS} of the peak, {flops:g}")
    fill = f"{FILL_CELLS} cells for each of {multiprocessors:g} multiprocessors"
    estimate("fill_cells", FILL_CELLS * multiprocessors, fill)
    speed = estimate("memory_speed", MEMORY * memory, f"{MEMORY} of the peak, {memory:g}")
    estimate("exchange_speed", speed, "memory_speed")
    for key, nbytes in BYTES.items():
        estimate(key, nbytes / speed, f"{nbytes} bytes at memory_speed")
    copies = estimate("link_speed", LINK * link, f"{LINK} of the peak, {link:g}")
    estimate("mapped_speed", MAPPED * copies, f"{MAPPED} of link_speed")
    for key, (value, text) in USUAL.items():
        estimate(key, value, f"a usual value {text}")
    return found


def _texts(table: Table, where: str) -> dict[str, str]:
    """A copy of the texts for single figures."""
    texts = table.get("sources", {})
    if not isinstance(texts, dict) or not all(isinstance(each, str) for each in texts.values()):
        refuse(f"{where}sources", "a table with texts", texts)
    return dict(texts)


def _positive(value: object, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        refuse(key, "a number above 0", value)
    return float(value)


def refuse(key: str, expected: str, got: object) -> NoReturn:
    """Raise UsageError for the value of a key."""
    raise UsageError(f"{key} must be {expected}; got {got!r}")
