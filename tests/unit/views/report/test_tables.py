"""The table of workers, with those of servers beneath these."""

from hogbatch.events.event import WorkerLost
from hogbatch.views.report.tables import MAX_WORKERS, column_table, worker_table
from tests.support.run_events import (
    ON_SERVERS,
    joined,
    own_worker,
    ready,
    server_workers,
    started,
)
from tests.unit.views.report.conftest import reported


def test_the_workers_of_each_server_are_beneath_it_also_if_it_is_lost(two_workers):
    assert worker_table(two_workers).beneath == frozenset()
    table = worker_table(reported(*ON_SERVERS, WorkerLost("server-0", "its machine died")))
    names = ["server-0", "cpu-0", "cpu-1", "3 more", "server-1", "gpu-0"]
    assert [row[0] for row in table.rows] == [names[0], *names[4:]]
    assert table.beneath == {2}
    states = dict(zip(table.header, table.rows[0], strict=True))
    assert states["state"] == "lost 2.0 s" and states["updates"] == "20"


def test_of_many_workers_those_of_servers_are_the_first_to_be_left_out():
    names = [f"server-{n}" for n in range(MAX_WORKERS - 20)]
    own = (server_workers(name, own_worker(), own_worker("cpu-1")) for name in names)
    table = worker_table(reported(started(), *map(joined, names), *map(ready, names), *own))
    assert [row[0] for n, row in enumerate(table.rows) if n not in table.beneath] == names
    assert len(table.rows) == MAX_WORKERS - 1
    assert table.note == f"{3 * len(names) - len(table.rows)} more workers are not shown."


def test_each_column_has_its_kind_missing_cells_and_the_reason_if_it_is_not_used():
    columns = [
        {"name": "age", "kind": "number", "missing": 1200, "unused": ""},
        {"name": "<id>", "kind": None, "missing": None, "unused": "--drop"},
    ]
    table = column_table(reported(started(columns=columns)).run)
    assert table.rows == (("age", "number", "1,200", ""), ("<id>", "not used", "-", "--drop"))
    assert column_table(reported().run).rows == ()
