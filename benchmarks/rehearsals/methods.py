"""The methods of the matrix: which processors of a server train, with which batches.

Names: KIND for a default policy, or KIND-BATCH; with "-28threads" if not all threads train.

Where the threads of the CPU compute each batch together by default, `hogwild` is the CPU alone with
threads on their own. Two threads of a core are of no use to a team, so only threads on their own
are also tried with one thread on each core.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from benchmarks.common.servers import Processors

ON_CPU: Final = ("cpu", "hogwild")
ALONE: Final = ("gpu", "gpus", *ON_CPU)  # "gpu": the first GPU; "gpus": all, without the CPU
TOGETHER: Final = ("hogbatch", "adaptive")
KINDS: Final = (*ALONE, *TOGETHER)


@dataclass(frozen=True, slots=True)
class Method:
    """One way to train: its name, and its flags of `hogbatch rehearse`."""

    name: str
    kind: str  # one of KINDS
    flags: tuple[str, ...]
    on_gpu: bool = False  # whether a GPU trains


def batch_of(name: str) -> int | None:
    """The fixed batch of the method of that name; None with the default policy."""
    _, _, rest = name.partition("-")
    batch = rest.partition("-")[0]
    return int(batch) if batch.isdecimal() else None


def kinds_of(processors: Processors, kinds: Collection[str] = KINDS) -> list[str]:
    """The kinds of methods alone that a server allows, of those in `kinds`."""
    gpus = len(processors.gpus)
    possible = {"gpu": gpus > 0, "gpus": gpus > 1, "cpu": True, "hogwild": processors.members > 1}
    return [kind for kind in ALONE if kind in kinds and possible[kind]]


def defaults(processors: Processors, kinds: Collection[str] = KINDS) -> Iterator[Method]:
    """The CPU alone with its default policy: one thread on each core, and if alone, all threads.

    On a server without a GPU, `adaptive` is the former.
    """
    if "cpu" in kinds:
        if processors.gpus:
            yield Method("cpu", "cpu", ("--workers", f"cpu:{processors.cores}"))
        if _by_core(processors, "cpu"):
            name = f"cpu-{processors.threads}threads"
            yield Method(name, "cpu", ("--workers", f"cpu:{processors.threads}"))


def together(processors: Processors, kinds: Collection[str] = KINDS) -> Iterator[Method]:
    """All processors under each policy, which decides about all of them before any trains."""
    start = ("--start-with", f"{1 + len(processors.gpus)}")
    on_gpu = bool(processors.gpus)
    yield from (
        Method(kind, kind, ("--policy", kind, *start), on_gpu) for kind in TOGETHER if kind in kinds
    )


def fixed(processors: Processors, kind: str, rows: int, *, by_core: bool = False) -> Method:
    """Devices of one kind alone with batches of `rows`; `by_core`: one CPU thread on each core."""
    teams: tuple[str, ...] = ()
    if kind in ON_CPU:
        threads = processors.cores if by_core else processors.threads
        flags, suffix = (f"cpu:{threads}", "--cpu-batch"), f"-{threads}threads" if by_core else ""
        teams = ("--cpu-teams", f"{threads}") if kind == "hogwild" else ()
    else:
        used = processors.gpus if kind == "gpus" else processors.gpus[:1]
        flags, suffix = (",".join(f"gpu:{gpu}" for gpu in used), "--gpu-batch"), ""
    workers, limits = flags
    settings = ("--workers", workers, *teams, "--policy", "fixed", limits, f"{rows}:{rows}")
    return Method(f"{kind}-{rows}{suffix}", kind, settings, on_gpu=kind not in ON_CPU)


def neighbours(processors: Processors, name: str, least: int, most: int) -> Iterator[Method]:
    """Half and twice the batch of a fixed method, and the other number of threads of the CPU.

    Batches outside [least, most] are left out.
    """
    kind, rows, by_core = name.partition("-")[0], batch_of(name), name.endswith("threads")
    assert rows is not None, "the default policy has no batch"
    for size in (rows // 2, rows * 2):
        if least <= size <= most:
            yield fixed(processors, kind, size, by_core=by_core)
    if _by_core(processors, kind):
        yield fixed(processors, kind, rows, by_core=not by_core)


def _by_core(processors: Processors, kind: str) -> bool:
    """Whether one thread on each core is another method of that kind than all threads."""
    alone = kind == "hogwild" or (kind == "cpu" and processors.members == 1)
    return alone and processors.cores != processors.threads
