"""The table of workers, with those of servers beneath these."""

from hogbatch.events.event import WorkerLost
from hogbatch.views.report.tables import MAX_WORKERS, WORKER_HEADER, worker_table
from tests.unit.views.report.conftest import reported
from tests.unit.views.status.conftest import (
    ON_SERVERS,
    joined,
    own_worker,
    ready,
    server_workers,
    started,
)


def test_the_workers_of_each_server_are_beneath_it_also_if_it_is_lost(two_workers):
    assert worker_table(two_workers).beneath == frozenset()
    table = worker_table(reported(*ON_SERVERS, WorkerLost("server-0", "its machine died")))
    names = ["server-0", "cpu-0", "cpu-1", "3 more", "server-1", "gpu-0"]
    assert [row[0] for row in table.rows] == names
    assert table.beneath == {1, 2, 3, 5} and table.note == "" and set(table.rows[3][1:]) == {""}
    server, own, *_ = (dict(zip(WORKER_HEADER, row, strict=True)) for row in table.rows)
    assert server["state"] == "lost: its machine died"
    assert own == {
        "worker": "cpu-0",
        "device": "cpu:2",
        "state": "left",
        "rows": "640",
        "updates": "10",
        "share": "25%",
        "rows/s": "320",
        "utilization": "-",
        "staleness": "-",
        "batch": "64",
        "ready at": "-",
        "left at": "2.00 s",
    }


def test_of_many_workers_those_of_servers_are_the_first_to_be_left_out():
    names = [f"server-{n}" for n in range(MAX_WORKERS - 20)]
    own = (server_workers(name, own_worker(), own_worker("cpu-1")) for name in names)
    table = worker_table(reported(started(), *map(joined, names), *map(ready, names), *own))
    assert [row[0] for n, row in enumerate(table.rows) if n not in table.beneath] == names
    assert len(table.rows) == MAX_WORKERS - 1
    assert table.note == f"{3 * len(names) - len(table.rows)} more workers are not shown."
