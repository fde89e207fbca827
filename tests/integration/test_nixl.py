"""Merges over NIXL between processes, and what happens when one of them dies."""

import pytest

from hogbatch.cluster.planes.nixl import unavailable
from tests.support.nixl_server import PATIENCE_S, Server

pytestmark = pytest.mark.slow
SHARED_MEMORY, TCP = {}, {"UCX_TLS": "tcp"}
SIZE = 700_000
NOT_LONG = 3.0  # seconds, to wait for a server that cannot answer


@pytest.fixture(scope="module", autouse=True)
def _installed(missing):
    if reason := unavailable():
        missing("nixl", reason)


@pytest.fixture
def start():
    started = []

    def begin(*numbers, variables):
        new = [Server(number, SIZE, variables) for number in numbers]
        started.extend(new)
        return new

    yield begin
    printed = [server.end() for server in started]
    assert printed == [b""] * len(started)  # neither our output nor that of NIXL and UCX


def connect(servers):
    """Give all servers the addresses of the others."""
    addresses = {server.number: server.ask("address") for server in servers}
    for server in servers:
        others = {number: each for number, each in addresses.items() if number != server.number}
        server.start("connect", others)
    assert [server.answer() for server in servers] == ["connected"] * len(servers)


def reduce(servers, merge, attempt):
    """One merge of all `servers`; their answers."""
    numbers = [server.number for server in servers]
    for server in servers:
        server.start("reduce", merge, attempt, numbers)
    return [server.answer() for server in servers]


@pytest.mark.parametrize("variables", [SHARED_MEMORY, TCP], ids=["shared memory", "tcp"])
def test_processes_get_the_same_bits(start, variables):
    servers = start(1, 2, 3, variables=variables)
    connect(servers)
    for merge in (0, 1):
        first, *others = reduce(servers, merge, 0)
        assert "hash" in first
        assert others == [first, first]
        assert servers[0].ask("error", [1, 2, 3]) < 1e-5
    assert not servers[0].ask("modules")


def test_survivors_repeat_a_merge_when_a_server_is_killed_in_it(start):
    servers = start(1, 2, 3, variables=TCP)
    connect(servers)
    reduce(servers, 1, 0)
    servers[2].ask("die_in_write", 2)
    survivors = servers[:2]
    for each in survivors:
        each.ask("wait_for_others", NOT_LONG)
    *survived, died = reduce(servers, 2, 0)
    assert died is None
    assert all(set(each) == {"failed"} for each in survived)
    for each in survivors:
        each.ask("wait_for_others", PATIENCE_S)
    connect(survivors)
    first, second = reduce(survivors, 2, 1)
    assert first == second
    assert survivors[0].ask("error", [1, 2]) < 1e-6


def test_a_server_of_an_earlier_membership_cannot_write(start):
    servers = start(1, 2, 3, variables=SHARED_MEMORY)
    connect(servers)
    target, _, stale = servers
    target.start("serve", 30)
    assert stale.ask("write", 1, "first") == "written"
    assert target.answer() == ["first"]
    before = target.ask("digest")
    connect(servers[:2])
    stale.ask("wait_for_others", NOT_LONG)
    target.start("serve", 2)
    assert stale.ask("write", 1, "second") == {"failed": 1}
    assert target.answer() == []
    assert target.ask("digest") == before
    first, second = reduce(servers[:2], 1, 0)
    assert first == second
