"""Settings of programs that are tried before the best of them is measured."""

from itertools import product
from typing import Any, Final

# By default glibc returns memory of this size to the kernel, and every move waits for fresh pages.
# "keep" makes glibc keep it; "keep in huge pages" also uses pages of 2 MiB, as hogbatch's segments.
KEEP: Final = (
    "glibc.malloc.arena_max=1:glibc.malloc.mmap_max=0"
    ":glibc.malloc.trim_threshold=1000000000000:glibc.malloc.top_pad=67108864"
)
MALLOCS: Final = {
    "default": "",
    "keep": KEEP,
    "keep in huge pages": f"{KEEP}:glibc.malloc.hugetlb=1",
}


def settings(**axes: tuple[object, ...]) -> tuple[dict[str, Any], ...]:
    """Every combination of the values of all axes."""
    return tuple(dict(zip(axes, values, strict=True)) for values in product(*axes.values()))
