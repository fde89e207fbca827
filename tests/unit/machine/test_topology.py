import pytest
from hypothesis import given, strategies as st

from hogbatch.machine.topology import (
    Topology,
    assign,
    cores_of_teams,
    parse_cores,
    physical_cores,
    show_cores,
    training_threads,
)


def machine(nodes=1, physical=4, smt=1, quota=None, without=()):
    """A server with the numbering of Linux: one core of each physical core, then their siblings."""
    count = nodes * physical
    groups = [{each + count * thread for thread in range(smt)} for each in range(count)]
    parts = [groups[node * physical : (node + 1) * physical] for node in range(nodes)]
    mask = frozenset().union(*groups).difference(without)
    cut = [frozenset().union(*part) & mask for part in parts]
    return Topology(
        mask,
        tuple(node for node in cut if node),
        tuple(frozenset(group & mask) for group in groups if group & mask),
        quota,
    )


@pytest.mark.parametrize(
    ("quota", "threads"), [(None, 8), (16.0, 8), (8.0, 8), (2.0, 2), (2.5, 3), (0.5, 1), (0.0, 1)]
)
def test_the_number_of_threads_is_the_mask_or_the_quota_rounded_up(quota, threads):
    assert machine(physical=8, quota=quota).threads == threads


@pytest.mark.parametrize(
    ("threads", "cores", "gpus", "expected"),
    [(16, 16, 1, 15), (2, 2, 3, 1), (56, 28, 0, 28), (56, 28, 2, 28), (9, 8, 2, 7)],
)
def test_one_thread_per_core_trains_and_a_logical_core_is_left_for_each_gpu(
    threads, cores, gpus, expected
):
    assert training_threads(threads, cores, gpus) == expected


SMT = {"physical": 4, "smt": 2}
FOUR_NODES = {"nodes": 4, "physical": 4, "without": (0, 4, 5, 8)}
UNEVEN = {"nodes": 2, "physical": 4, "without": (4, 5)}


@pytest.mark.parametrize(
    ("server", "threads", "taken", "expected"),
    [
        ({"nodes": 2, "physical": 2, "smt": 2}, [8], [], [(0, 1, 2, 3, 4, 5, 6, 7)]),
        # Physical cores that are not shared come first.
        (SMT, [4], [], [(0, 1, 2, 3)]),
        (SMT, [6], [], [(0, 1, 2, 3, 4, 5)]),
        (SMT, [2, 2], [], [(0, 1), (2, 3)]),
        (SMT, [4, 4], [], [(0, 1, 2, 3), (4, 5, 6, 7)]),
        ({"physical": 2, "smt": 2}, [1], [2], [(1,)]),
        ({"physical": 2, "smt": 2}, [1], [0, 1], [(2,)]),
        # Then a single node, the smallest that suffices, or the largest ones.
        ({"nodes": 2, "physical": 4}, [3, 4], [], [(4, 5, 6), (0, 1, 2, 3)]),
        (UNEVEN, [2], [], [(6, 7)]),
        (UNEVEN, [3], [], [(0, 1, 2)]),
        ({"nodes": 2, "physical": 4, "smt": 2}, [6], [], [(0, 1, 2, 3, 4, 5)]),
        (FOUR_NODES, [7], [], [(1, 2, 3, 12, 13, 14, 15)]),
        # No thread is pinned if there are more threads than cores, or under a quota.
        ({"physical": 4}, [3, 2], [], [(), ()]),
        ({"physical": 4}, [4], [2], [()]),
        ({"physical": 4, "quota": 2.0}, [2], [], [()]),
        ({"physical": 4, "quota": 4.0}, [2], [], [(0, 1)]),
        ({"physical": 4}, [0, 4, 0], [], [(), (0, 1, 2, 3), ()]),
        ({}, [], [], []),
    ],
)
def test_cores_are_assigned(server, threads, taken, expected):
    assert assign(machine(**server), threads, taken) == expected


machines = st.builds(
    machine,
    nodes=st.integers(1, 4),
    physical=st.integers(1, 6),
    smt=st.sampled_from([1, 2, 4]),
    without=st.frozensets(st.integers(1, 95), max_size=10),
)


@given(machines, st.lists(st.integers(0, 12), max_size=5), st.frozensets(st.integers(0, 95)))
def test_cores_are_disjoint_free_and_as_many_as_requested(topology, threads, taken):
    given_cores = assign(topology, threads, taken)
    flat = [core for cores in given_cores for core in cores]
    assert len(given_cores) == len(threads)
    assert len(set(flat)) == len(flat)
    assert set(flat) <= topology.cores - taken
    if sum(threads) <= len(topology.cores - taken):
        assert [len(cores) for cores in given_cores] == threads
    else:
        assert flat == []


@given(machines, st.integers(1, 24))
def test_physical_cores_are_no_more_crowded_than_necessary(topology, wanted):
    (cores,) = assign(topology, [wanted])
    room = [len(group) for group in topology.siblings]
    least = next((n for n in range(1, 5) if sum(min(n, r) for r in room) >= wanted), None)
    if least is None:
        assert cores == ()
    else:
        assert max(len(group.intersection(cores)) for group in topology.siblings) == least


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected core numbers as in 0,2,4-7; got ''"),
        *((text, f"got {text!r}") for text in ("a", "1,", "-1", "1-", "0x1", "1-2-3")),
        ("7-4", "expected a range from low to high; got '7-4'"),
        ("0-99999999999", "expected a range from low to high; got '0-99999999999'"),
        ("1,0-2", "expected each core once; got '1,0-2'"),
    ],
)
def test_an_invalid_list_of_cores_is_refused(text, message):
    with pytest.raises(ValueError) as refusal:
        parse_cores(text)
    assert str(refusal.value).endswith(message)


def test_a_list_of_cores_is_parsed_in_its_order():
    assert parse_cores("0,2,4-7") == (0, 2, 4, 5, 6, 7)
    assert (parse_cores("5,1"), parse_cores(" 3 , 8-8\n")) == ((5, 1), (3, 8))
    assert (show_cores((6, 0, 2, 4, 5)), show_cores(())) == ("0,2,4-6", "")


@pytest.mark.parametrize(
    ("cores", "teams", "members", "places"),
    [
        (range(4), 2, 2, [(0, 1), (2, 3)]),  # a node each
        ((3, 0, 2, 1), 2, 2, [(0, 1), (2, 3)]),
        (range(8), 1, 4, [(0, 1, 2, 3)]),  # the siblings 4 to 7 are not used
        (range(8), 2, 4, [(0, 1, 2, 3), (4, 5, 6, 7)]),
        ((0, 4, 1, 5), 1, 2, [(0, 1)]),
        (range(3), 1, 2, [(0, 1)]),
    ],
)
def test_a_team_has_neighbouring_physical_cores(cores, teams, members, places):
    server = machine(nodes=2, physical=2, smt=2)
    assert physical_cores(server, (0, 1, 2, 3)) == physical_cores(server, tuple(range(8))) == 4
    assert cores_of_teams(server, tuple(cores), teams, members) == places
