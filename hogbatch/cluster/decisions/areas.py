"""Memory areas that a merge uses for the messages of servers, by kind of reduction.

All offsets and sizes count float32 numbers, whatever the messages contain. A slot belongs to one
sender and starts on a cache line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from hogbatch.cluster.decisions.compression import top_count
from hogbatch.cluster.decisions.median import BLOCK, block_count, chosen_count
from hogbatch.cluster.decisions.reduction import halving
from hogbatch.cluster.decisions.transfers import Reduction, staging_size

LINE: Final = 16  # numbers of a cache line
ALL: Final = (
    Reduction("ring"),
    Reduction("halving"),
    Reduction(transfer="bfloat16"),
    Reduction(transfer="top-k"),
    Reduction(robust="median"),
)


class SenderSlots(NamedTuple):
    """One slot for each of several senders."""

    start: int
    stride: int
    servers: int

    @property
    def end(self) -> int:
        """The offset after the last slot."""
        return self.start + self.stride * self.servers

    def offset(self, rank: int) -> int:
        """The offset of the slot of the sender at `rank`."""
        return self.start + self.stride * rank


@dataclass(frozen=True, slots=True)
class Areas:
    """Sizes of the areas that depend on how changes are sent."""

    staging: int  # received parts
    outgoing: int  # what is sent, if it is not a part of the change or of the sum
    residual: int  # what was not sent; and as much again for the next one


def bfloat16_slots(size: int, servers: int) -> tuple[SenderSlots, int]:
    """The slots of the parts that one server adds, and the offset of all sums after them."""
    slots = SenderSlots(0, _lines((-(-size // servers) + 1) // 2), servers)
    return slots, slots.end


def top_k_slots(size: int, servers: int) -> SenderSlots:
    """The slots of the chosen numbers: indices int32[k], then values float32[k]."""
    return SenderSlots(0, _lines(2 * top_count(size)), servers)


def median_slots(size: int, servers: int, fraction: float) -> tuple[SenderSlots, SenderSlots, int]:
    """The slots of norms (with the weight in front) and of blocks, and the offset of the weights.

    The weights are float64[servers].
    """
    norms = SenderSlots(0, _lines(1 + block_count(size)), servers)
    blocks = SenderSlots(norms.end, _lines(BLOCK * chosen_count(size, fraction)), servers)
    return norms, blocks, blocks.end


def reductions_of(
    transfer: Literal["float32", "bfloat16", "top-k"], robust: Literal["none", "median"]
) -> list[Reduction]:
    """The reductions that a run with these settings uses."""
    return [how for how in ALL if (how.transfer, how.robust) == (transfer, robust)]


@lru_cache(maxsize=64)  # needed in each merge
def areas(size: int, servers: int, how: Reduction) -> Areas:
    """What `servers` servers, or fewer, need for merges of `size` parameters."""
    counts = range(2, servers + 1)
    residual = size if how.compressed else 0
    if how.robust == "median":
        norms, blocks, end = median_slots(size, servers, how.fraction)
        outgoing = max(2 * servers, norms.stride + blocks.stride)
        return Areas(end + _lines(2 * servers), outgoing, residual)
    if how.transfer == "top-k":
        return Areas(top_k_slots(size, servers).end, 2 * top_count(size), residual)
    halves = (size + 1) // 2
    if how.transfer == "bfloat16":
        staging = max((bfloat16_slots(size, each)[1] + halves for each in counts), default=0)
        return Areas(staging, halves, residual)
    if how.schedule == "ring":  # needs no staging, see hogbatch.cluster.decisions.transfers
        return Areas(0, 0, 0)
    return Areas(max((staging_size(halving(each), size) for each in counts), default=0), 0, 0)


def areas_for_any(size: int, servers: int, reductions: Sequence[Reduction]) -> Areas:
    """What any one of these reductions among `servers` servers, or fewer, needs."""
    each = [areas(size, servers, how) for how in reductions]
    return Areas(
        max(one.staging for one in each),
        max(one.outgoing for one in each),
        max(one.residual for one in each),
    )


def _lines(count: int) -> int:
    return -(-count // LINE) * LINE
