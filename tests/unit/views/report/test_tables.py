"""The table of workers, with those of servers beneath these."""

from hogbatch.events.event import WorkerLost
from hogbatch.views.report.tables import MAX_WORKERS, WORKER_HEADER, worker_table
from tests.unit.views.report.conftest import reported
from tests.unit.views.status.conftest import (
    ON_SERVERS,
    ended,
    event,
    joined,
    own_worker,
    ready,
    server_workers,
    started,
)


def test_the_workers_of_each_server_are_beneath_it():
    table = worker_table(reported(*ON_SERVERS, ended(seconds=2.0, rows=3840)))
    names = ["server-0", "cpu-0", "cpu-1", "3 more", "server-1", "gpu-0"]
    assert [row[0] for row in table.rows] == names
    assert table.beneath == {1, 2, 3, 5} and table.note == ""
    shown = dict(zip(WORKER_HEADER, table.rows[1], strict=True))
    assert (shown["device"], shown["rows"], shown["updates"]) == ("cpu:2", "640", "10")
    assert (shown["share"], shown["rows/s"], shown["batch"]) == ("25%", "320", "64")
    unknown = {shown[name] for name in ("utilization", "staleness", "ready at", "left at")}
    assert unknown == {"-"} and set(table.rows[3][1:]) == {""}


def test_the_workers_of_a_lost_server_are_shown_with_what_they_have_done():
    lost = event(WorkerLost, "server-0", "its machine died")
    table = worker_table(reported(*ON_SERVERS, lost))
    server, own, *_ = (dict(zip(WORKER_HEADER, row, strict=True)) for row in table.rows)
    assert (server["state"], own["state"]) == ("lost: its machine died", "left")
    assert (own["rows"], own["left at"]) == ("640", "2.00 s")


def test_of_many_workers_those_of_servers_are_the_first_to_be_left_out():
    names = [f"server-{n}" for n in range(MAX_WORKERS - 20)]
    own = (server_workers(name, own_worker(), own_worker("cpu-1")) for name in names)
    run = reported(started(), *map(joined, names), *map(ready, names), *own)
    table = worker_table(run)
    servers = [row[0] for n, row in enumerate(table.rows) if n not in table.beneath]
    assert servers == names and len(table.rows) == MAX_WORKERS - 1
    assert table.note == f"{3 * len(names) - len(table.rows)} more workers are not shown."


def test_a_run_without_servers_has_no_indented_rows(two_workers):
    table = worker_table(two_workers)
    assert [row[0] for row in table.rows] == ["cpu-0", "gpu-0"] and table.beneath == frozenset()
