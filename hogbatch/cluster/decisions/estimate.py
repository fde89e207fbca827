"""Predicted time of merges between servers, and the number of servers that a link allows.

The figures are predictions. They follow from the size of the model, from the rows per second that
one server trains on (measured, rehearsed or assumed), and from the latency and the speed of a link.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, NamedTuple

from hogbatch.cluster.decisions.link import ServerLink
from hogbatch.cluster.decisions.reduction import Cost, halving_cost, ring_cost

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

    @property
    def rows_between_merges(self) -> int:
        """The rows that all servers train on in a mega-batch."""
        return round(self.rows / self.merges_per_epoch)

    def seconds_between_merges(self, servers: int) -> float:
        """The duration of a mega-batch, which `servers` servers train on together."""
        return self.rows / self.merges_per_epoch / (servers * self.rows_per_second)


def parameters_of(sizes: Sequence[int]) -> int:
    """The parameters of fully connected layers; `sizes` are those of the inputs and all layers."""
    return sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise(sizes))


class PredictedMerge(NamedTuple):
    """One merge of all servers."""

    cost: Cost
    sent: float  # bytes, by the server that sends most
    waiting: float  # seconds for the latency of the steps
    sending: float  # seconds for these bytes
    adding: float  # seconds for additions

    @property
    def seconds(self) -> float:
        """Of the merge, without copying the changes."""
        return self.waiting + self.sending + self.adding


class ServerPlan(NamedTuple):
    """What is predicted for a number of servers."""

    servers: int
    merge: PredictedMerge
    interval: float  # seconds between two merges
    share: float  # seconds of a merge over the seconds between two
    epoch: float  # seconds in which all servers train on all rows
    fewest_rows: int  # between two merges, for the wanted share
    most_merges: float  # in an epoch, for the wanted share
    most_rows_per_second: float  # of one server, for the wanted share with one merge per epoch
    parameter_servers: int  # that would hide the transfers; see `parameter_servers`

    @property
    def possible(self) -> bool:
        """Whether the wanted share is possible: there is a merge at the end of each epoch."""
        return self.most_merges >= 1.0


class ClusterPlan(NamedTuple):
    """What is predicted for a task and a link; merges are to take `share` of the time."""

    task: Task
    link: ServerLink
    share: float
    most_servers: int  # of which merges take at most this share
    most_servers_once: int  # the same with one merge per epoch
    most_waiting: int  # servers with EFFICIENCY if training waited for merges
    servers: tuple[ServerPlan, ...]


def predict(task: Task, link: ServerLink, share: float, servers: Iterable[int]) -> ClusterPlan:
    """The predictions for some numbers of `servers`, and the largest number for `share`."""
    once = replace(task, merges_per_epoch=1.0)
    return ClusterPlan(
        task,
        link,
        share,
        most_servers(task, link, share),
        most_servers(once, link, share),
        most_with_efficiency(task, link, EFFICIENCY),
        tuple(_plan(task, link, share, each) for each in servers),
    )


def _plan(task: Task, link: ServerLink, share: float, servers: int) -> ServerPlan:
    merge, interval = merge_of(task, servers, link), task.seconds_between_merges(servers)
    needed = merge.seconds / share * servers  # seconds of one server between two merges
    return ServerPlan(
        servers,
        merge,
        interval,
        merge.seconds / interval,
        epoch=interval * task.merges_per_epoch,
        fewest_rows=math.ceil(needed * task.rows_per_second),
        most_merges=task.rows / (needed * task.rows_per_second) if needed else math.inf,
        most_rows_per_second=task.rows / needed if needed else math.inf,
        parameter_servers=parameter_servers(task, servers, link),
    )


def parameter_servers(task: Task, servers: int, link: ServerLink) -> int:
    """How many parameter servers would hide their transfers behind the training of `servers`.

    Each server sends its model to them and receives the merged one, 2 S bytes in all, in the T
    seconds between two merges: at least 2 S N / (B T) of them with links of B bytes per second
    (lemma 2 of Zou et al. 2017, arXiv 1709.06622). Here, each server takes the part of one of them.
    """
    moved = 2 * task.model_bytes * servers
    return math.ceil(moved / (link.speed * task.seconds_between_merges(servers)))


def merge_of(task: Task, servers: int, link: ServerLink) -> PredictedMerge:
    """The faster one of the two reductions; all servers begin at the same time."""
    costs = ring_cost(servers), halving_cost(servers)
    both = (merge_by(cost, task.model_bytes, link) for cost in costs)
    return min(both, key=lambda each: each.seconds)


def merge_by(cost: Cost, model_bytes: int, link: ServerLink) -> PredictedMerge:
    """A merge by a reduction of this cost."""
    sent, added = cost.models * model_bytes, cost.added * model_bytes
    waiting = cost.steps * link.latency
    return PredictedMerge(cost, sent, waiting, sent / link.speed, added / ADD_SPEED)


def most_servers(task: Task, link: ServerLink, share: float) -> int:
    """The number of servers up to which merges take at most `share`."""

    def fits(servers: int) -> bool:
        seconds = merge_of(task, servers, link).seconds
        return seconds <= share * task.seconds_between_merges(servers)

    return _most(fits)


def most_with_efficiency(task: Task, link: ServerLink, efficiency: float) -> int:
    """The number of servers up to which the efficiency is this if training waited for merges.

    With T_C seconds of computing on one server and T_O of merging per mega-batch, G servers have
    the efficiency T_C / (T_C + G T_O): lemma 1 of Zou et al. 2017 (arXiv 1709.06622) for one server
    without overhead.
    """
    computing = task.seconds_between_merges(1)

    def fits(servers: int) -> bool:
        overhead = merge_of(task, servers, link).seconds
        return computing / (computing + servers * overhead) >= efficiency

    return _most(fits)


def _most(fits: Callable[[int], bool]) -> int:
    """The largest number of servers, up to MOST_SERVERS, up to which all numbers fit.

    A larger one may fit, too: merges of 64 servers are faster than those of 63.
    """
    return next(
        (servers for servers in range(1, MOST_SERVERS) if not fits(servers + 1)), MOST_SERVERS
    )
