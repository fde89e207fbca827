"""The ring in which servers sum their changes of a model.

The model is divided into as many parts as there are servers. In each step, a server sends a part to
the next server only: at first parts of the sum, to which the receiver adds its own change, and then
finished parts. So each server sends about two models, whatever the number of servers (Thakur,
Rabenseifner & Gropp 2005, "Optimization of Collective Communication Operations in MPICH").

A part is finished by one server, so all servers end with the same bits although addition of floats
is not associative. What a server receives goes to its place in the sum: each part is received once
to be added, before this server has written there, and once to replace what it has sent before.
"""

from collections.abc import Iterator
from typing import NamedTuple


class RingStep(NamedTuple):
    """The transfers of one server in one step; it sends before it waits for what it receives."""

    sent: slice  # numbers of the model that go to the next server
    received: slice  # numbers that come from the server before
    adds: bool  # whether this server adds its own change to the numbers that it receives


def ring_steps(rank: int, servers: int, size: int) -> Iterator[RingStep]:
    """The steps of the server at `rank` for a model of `size` parameters."""

    def part(index: int) -> slice:
        first = index % servers
        return slice(first * size // servers, (first + 1) * size // servers)

    for step in range(2 * (servers - 1)):
        yield RingStep(part(rank - step), part(rank - step - 1), adds=step < servers - 1)
