"""Records for the start of a server's process, and about its memory."""

from dataclasses import replace

import msgspec

from hogbatch.coordinator.plan import Plan
from hogbatch.policy.base import PolicySettings
from hogbatch.store.layout import Layout
from hogbatch.wire.curve import Keys


class ServerStart(msgspec.Struct, frozen=True):
    """Everything that a server needs except the arrays."""

    control: str  # ZeroMQ endpoint of the coordinator of all servers
    keys: Keys | None  # None: on this machine, where only the same user can connect
    identity: bytes  # of the server
    settings: str  # as TOML: those of `hogbatch train`
    workers: str  # to start: "cpu:8,gpu:0"
    plan: Plan  # of this server
    policy: PolicySettings
    data: Layout  # of the segment with the sets of rows, or with DividedFiles
    parts: tuple[int, ...] | None  # of divided data, to be read by this server; None: not divided
    features: int
    mean_square: float  # of the inputs, on which the initial weights depend
    relay: str  # what moves the models if the plane is the relay, for display


class ServerMemory(msgspec.Struct, frozen=True):
    """The location of the memory of a server's process, for the process that has started it."""

    shared: int  # descriptor
    layout: Layout  # of it
    exchange: int  # descriptor
    exchange_layout: Layout


def plan_of_server(plan: Plan, workers: int) -> Plan:
    """The plan of a server with `workers` workers: others decide about its rows and its end."""
    stopping = replace(plan.stopping, by_epoch=True, first_epoch=False, max_rows=None)
    return replace(plan, stopping=stopping, start_with=workers)
