"""How long merges between servers take, and how many servers a network and a link allow.

The figures are predictions. They follow from the size of the model, from the rows per second that
one server was measured or rehearsed to train on, and from the latency and the speed of a link.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from hogbatch.cluster.link import ServerLink
from hogbatch.cluster.reduction import Cost, halving_cost, ring_cost

FLOAT: Final = 4  # bytes
MOST_SERVERS: Final = 4096  # tried
EFFICIENCY: Final = 0.8  # of servers that would wait for their merges
ADD_SPEED: Final = 5e9  # bytes per second that one core adds to a model in memory


@dataclass(frozen=True, slots=True)
class Task:
    """A training problem on one kind of server."""

    parameters: int
    rows: int  # of the training set
    rows_per_second: float  # of one server
    merges_per_epoch: float  # an epoch is a pass of all servers together

    @property
    def model_bytes(self) -> int:
        """The size of the model."""
        return FLOAT * self.parameters

    def seconds_between_merges(self, servers: int) -> float:
        """The duration of a mega-batch, which `servers` servers train on together."""
        return self.rows / self.merges_per_epoch / (servers * self.rows_per_second)


class PredictedMerge(NamedTuple):
    """One merge of all servers."""

    cost: Cost
    sent: float  # bytes, by the server that sends most
    seconds: float


class ServerPlan(NamedTuple):
    """What is predicted for a number of servers."""

    servers: int
    merge: PredictedMerge
    interval: float  # seconds between two merges
    share: float  # seconds of a merge over the seconds between two
    fewest_rows: int  # between two merges, for the wanted share


class ClusterPlan(NamedTuple):
    """What is predicted for a task and a link; merges are to take `share` of the time."""

    task: Task
    link: ServerLink
    share: float
    most_servers: int  # of which merges take at most this share
    most_waiting: int  # servers with EFFICIENCY if training waited for merges
    servers: tuple[ServerPlan, ...]


def predict(task: Task, link: ServerLink, share: float, servers: Iterable[int]) -> ClusterPlan:
    """The predictions for some numbers of `servers`, and the largest number for `share`."""
    return ClusterPlan(
        *(task, link, share, most_servers(task, link, share)),
        most_with_efficiency(task, link, EFFICIENCY),
        tuple(_plan(task, link, share, each) for each in servers),
    )


def _plan(task: Task, link: ServerLink, share: float, servers: int) -> ServerPlan:
    merge, interval = merge_of(task, servers, link), task.seconds_between_merges(servers)
    fewest = math.ceil(merge.seconds / share * servers * task.rows_per_second)
    return ServerPlan(servers, merge, interval, merge.seconds / interval, fewest)


def merge_of(task: Task, servers: int, link: ServerLink) -> PredictedMerge:
    """The faster one of the two reductions; all servers begin at the same time."""
    both = (_merge(task, link, cost(servers)) for cost in (ring_cost, halving_cost))
    return min(both, key=lambda each: each.seconds)


def _merge(task: Task, link: ServerLink, cost: Cost) -> PredictedMerge:
    sent = cost.models * task.model_bytes
    return PredictedMerge(cost, sent, merge_seconds(cost, task.model_bytes, link))


def merge_seconds(cost: Cost, model_bytes: int, link: ServerLink) -> float:
    """The seconds of a reduction of this cost."""
    sent, added = cost.models * model_bytes, cost.added * model_bytes
    return cost.steps * link.latency + sent / link.speed + added / ADD_SPEED


def most_servers(task: Task, link: ServerLink, share: float) -> int:
    """The largest number of servers, up to MOST_SERVERS, whose merges take at most `share`."""
    for servers in range(MOST_SERVERS, 1, -1):
        merge = merge_of(task, servers, link)
        if merge.seconds <= share * task.seconds_between_merges(servers):
            return servers
    return 1


def most_with_efficiency(task: Task, link: ServerLink, efficiency: float) -> int:
    """The largest number of servers with this efficiency if training waited for each merge.

    With T_C seconds of computing on one server and T_O of merging per mega-batch, G servers have
    the efficiency T_C / (T_C + G T_O): lemma 1 of Zou et al. 2017 (arXiv 1709.06622) for one server
    without overhead.
    """
    computing = task.seconds_between_merges(1)
    for servers in range(MOST_SERVERS, 1, -1):
        overhead = merge_of(task, servers, link).seconds
        if computing / (computing + servers * overhead) >= efficiency:
            return servers
    return 1
