"""Schedules by which servers sum their changes of a model, without one that receives all of them.

A schedule is a list of steps. In a step, servers send parts of the model to others at the same
time; the receiver adds the part to its own, or replaces its own by it. After all steps, every
server has the sum. Both schedules move about two models per server, whatever their number
(Thakur, Rabenseifner & Gropp 2005, "Optimization of Collective Communication Operations in MPICH"):

========  =====================  ==================================================
schedule  steps for N servers    sent by each server, in models
========  =====================  ==================================================
ring      2 (N - 1)              2 (N - 1) / N
halving   2 log2 N               2 (N - 1) / N; for N that is not a power of two,
                                 two more steps, with one model each
========  =====================  ==================================================

The ring has the smallest steps, halving the fewest.
"""

from typing import Final, Literal, NamedTuple

Parts = tuple[int, int]  # [first, last) of the equal parts that the model is divided into


class Transfer(NamedTuple):
    """Server `sender` sends `parts` to server `receiver`, which adds or replaces its own."""

    sender: int
    receiver: int
    parts: Parts
    then: Literal["add", "replace"]


class ReductionSchedule(NamedTuple):
    """The steps of a reduction; the model is divided into `parts` equal parts."""

    name: Literal["ring", "halving"]
    parts: int
    steps: tuple[tuple[Transfer, ...], ...]


class Cost(NamedTuple):
    """What a schedule costs, whatever the model."""

    name: Literal["ring", "halving"]
    steps: int
    messages: int  # transfers of all servers
    models: float  # sum over the steps of their largest transfer, in models
    added: float  # the part of `models` that is added to what the receiver has


SMALL: Final = 1 << 14  # parameters that are sent in the latency: 64 KiB, 50 us at 10 Gbit/s


def fastest(servers: int, parameters: int) -> Literal["ring", "halving"]:
    """The schedule for a model: few steps for a small one, small ones for a large one.

    Halving moves two models more than a ring if the number of servers is not a power of two; its
    fewer steps save more than that if the model is small, or if there are many servers.
    """
    ring, halving = ring_cost(servers), halving_cost(servers)
    more = (halving.models - ring.models) * parameters
    return "halving" if more <= (ring.steps - halving.steps) * SMALL else "ring"


def ring_cost(servers: int) -> Cost:
    """The cost of :func:`ring`."""
    steps = 2 * (servers - 1)
    return Cost("ring", steps, servers * steps, steps / servers, steps / servers / 2)


def halving_cost(servers: int) -> Cost:
    """The cost of :func:`halving`."""
    core = 1 << (servers.bit_length() - 1)
    halvings, beyond = core.bit_length() - 1, servers - core
    added = (core - 1) / core + (beyond > 0)
    steps = 2 * (halvings + (beyond > 0))
    return Cost("halving", steps, 2 * (halvings * core + beyond), 2 * added, added)


def ring(servers: int) -> ReductionSchedule:
    """Each server sends to the next one only: first sums of parts, then the finished parts."""
    steps = []
    for number in range(2 * (servers - 1)):
        adds = number < servers - 1
        transfers = []
        for server in range(servers):
            part = (server - number + (0 if adds else servers)) % servers
            to = (server + 1) % servers
            transfers.append(Transfer(server, to, (part, part + 1), "add" if adds else "replace"))
        steps.append(tuple(transfers))
    return ReductionSchedule("ring", servers, tuple(steps))


def halving(servers: int) -> ReductionSchedule:
    """Pairs exchange halves of what they hold, at doubled distances, and then the reverse.

    If the number is not a power of two, each of the servers beyond the largest one that is sends
    its whole model to a partner first, and receives the sum at the end.
    """
    core = 1 << (servers.bit_length() - 1)
    beyond = range(core, servers)
    everything = (0, core)
    steps = []
    if beyond:
        steps.append(tuple(Transfer(each, each - core, everything, "add") for each in beyond))
    held: dict[int, Parts] = dict.fromkeys(range(core), everything)
    distance, reversed_steps = core // 2, []
    while distance:
        adds, replaces = [], []
        for server in range(core):
            partner, (start, stop) = server ^ distance, held[server]
            middle = (start + stop) // 2
            kept, sent = (start, middle), (middle, stop)
            if server > partner:
                kept, sent = sent, kept
            adds.append(Transfer(server, partner, sent, "add"))
            replaces.append(Transfer(server, partner, kept, "replace"))
            held[server] = kept
        steps.append(tuple(adds))
        reversed_steps.append(tuple(replaces))
        distance //= 2
    steps += reversed(reversed_steps)
    if beyond:
        steps.append(tuple(Transfer(each - core, each, everything, "replace") for each in beyond))
    return ReductionSchedule("halving", core, tuple(steps))
