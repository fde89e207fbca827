"""How several servers train together."""

from dataclasses import dataclass
from typing import Literal

from hogbatch.cluster.link import ServerLink


@dataclass(frozen=True, slots=True)
class SeveralServers:
    """The number of servers, and how they merge their models."""

    count: int
    link: ServerLink
    merge_rows: int | None  # of all servers between two merges; None: a hundredth of all rows
    merge: Literal["sum", "average"]  # changes are added, or averaged as by Adaptive SGD
    momentum: float  # of the merged model; 0: none
