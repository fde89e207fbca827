"""Memory areas that a merge uses for the messages of servers, by the settings of a run.

All offsets and sizes count float32 numbers, whatever the messages contain. A slot belongs to one
sender and starts on a cache line.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from hogbatch.cluster.decisions.compression import top_count
from hogbatch.cluster.decisions.median import BLOCK, block_count, chosen_count
from hogbatch.cluster.decisions.reduction import halving
from hogbatch.cluster.decisions.transfers import staging_size

LINE: Final = 16  # numbers of a cache line


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


def median_slots(size: int, servers: int) -> tuple[SenderSlots, SenderSlots, int]:
    """The slots of norms (with the weight in front) and of blocks, and the offset of the weights.

    The weights are float64[servers].
    """
    norms = SenderSlots(0, _lines(1 + block_count(size)), servers)
    blocks = SenderSlots(norms.end, _lines(BLOCK * chosen_count(size)), servers)
    return norms, blocks, blocks.end


def areas(size: int, servers: int, transfer: str, robust: str) -> Areas:
    """What `servers` servers, or fewer, need for merges of `size` parameters.

    `transfer` and `robust` are as in `MergeSettings`.
    """
    counts = range(2, servers + 1)
    if robust == "median":
        norms, blocks, end = median_slots(size, servers)
        outgoing = max(2 * servers, norms.stride + blocks.stride)
        return Areas(end + _lines(2 * servers), outgoing, size)
    if transfer == "top-k":
        return Areas(top_k_slots(size, servers).end, 2 * top_count(size), size)
    if transfer == "bfloat16":
        halves = (size + 1) // 2
        staging = max((bfloat16_slots(size, each)[1] + halves for each in counts), default=0)
        return Areas(staging, halves, size)
    # A ring needs no staging, see hogbatch.cluster.decisions.transfers.
    return Areas(max((staging_size(halving(each), size) for each in counts), default=0), 0, 0)


def _lines(count: int) -> int:
    return -(-count // LINE) * LINE
