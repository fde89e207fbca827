"""Positions among the rows of all servers, and among those of one."""

from types import SimpleNamespace

from hogbatch.cluster.divided.reading import ServerRows
from hogbatch.cluster.divided.records import DividedFiles, Part
from hogbatch.data.sizes import SetSizes
from hogbatch.wire.messages import Lease


def test_each_row_of_the_own_parts_has_one_position():
    rows, own = [3, 0, 4, 2, 5], (1, 2, 4)
    sets = [{"train": SetSizes(each, 1, False), "test": SetSizes(9, 1, False)} for each in rows]
    parts = tuple(
        Part(number=number, path="", digest=b"", sets=each) for number, each in enumerate(sets)
    )
    server = ServerRows(DividedFiles(parts, (), SimpleNamespace()), own)
    first = {part: sum(rows[:part]) for part in own}
    leases = [
        Lease(1, "train", 0, first[part] + row, sum(rows[: part + 1]), 1, 0.1, 0)
        for part in own
        for row in range(rows[part])
    ]
    local = [server.local(lease) for lease in leases]
    assert [lease.start for lease in local] == list(range(9))
    assert [each.stop - each.start for each in local] == [4, 3, 2, 1, 5, 4, 3, 2, 1]
