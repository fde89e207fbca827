"""Predicted time of merges between servers.

It follows from the size of the model, and from the latency and the speed of a link.
"""

from typing import Final, NamedTuple

from hogbatch.cluster.decisions.link import ServerLink
from hogbatch.cluster.decisions.reduction import Cost, halving_cost, ring_cost

FLOAT: Final = 4  # bytes
ADD_SPEED: Final = 5e9  # bytes per second that one core adds to a model in memory


class PredictedMerge(NamedTuple):
    """One merge of all servers."""

    cost: Cost
    sent: float  # bytes, by the server that sends most
    seconds: float  # without copying the changes


def merge_of(parameters: int, servers: int, link: ServerLink) -> PredictedMerge:
    """The faster one of the two reductions; all servers begin at the same time."""
    costs = ring_cost(servers), halving_cost(servers)
    both = (merge_by(cost, FLOAT * parameters, link) for cost in costs)
    return min(both, key=lambda each: each.seconds)


def merge_by(cost: Cost, model_bytes: int, link: ServerLink) -> PredictedMerge:
    """A merge by a reduction of this cost."""
    sent, added = cost.models * model_bytes, cost.added * model_bytes
    seconds = cost.steps * link.latency + sent / link.speed + added / ADD_SPEED
    return PredictedMerge(cost, sent, seconds)
