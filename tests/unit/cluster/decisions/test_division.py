"""The division of files among servers."""

from itertools import combinations

import pytest

from hogbatch.cluster.decisions.division import divide
from hogbatch.errors import UsageError


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_each_part_is_on_as_many_servers_as_there_are_copies(copies):
    places = divide([5, 1, 4, 2, 3, 9], servers=3, copies=copies)
    held = sorted(part for place in places for part in place)
    assert held == sorted(list(range(6)) * copies)
    assert all(list(place) == sorted(set(place)) for place in places)


def test_servers_have_about_the_same_number_of_rows():
    sizes = [100, 30, 30, 40, 1, 1]
    assert [sum(sizes[part] for part in place) for place in divide(sizes, 2, 1)] == [101, 101]
    assert all(len(place) == 1 for place in divide([0, 0, 0], 3, 1)), "empty files are spread"


def test_all_other_servers_share_the_parts_of_a_server():
    places = divide([1] * 24, servers=4, copies=2)
    assert all(len(place) == 12 for place in places)
    assert all(len(set(one) & set(other)) == 4 for one, other in combinations(places, 2))
    assert divide([1] * 3, servers=3, copies=2) == ((0, 2), (0, 1), (1, 2)), "one part for each"


def test_too_few_files_are_refused():
    with pytest.raises(UsageError, match=r"--servers 3: the data have only 2 files"):
        divide([1, 1], servers=3, copies=1)
