"""Positions among the rows of all servers, and among those of one."""

from hogbatch.cluster.divided.reading import Positions


def test_each_row_of_the_own_parts_has_one_position():
    sizes, own = [3, 0, 4, 2, 5], (1, 2, 4)
    positions = Positions(sizes, own)
    first = {part: sum(sizes[:part]) for part in own}
    found = [positions.local(first[part] + row) for part in own for row in range(sizes[part])]
    assert found == list(range(9))
