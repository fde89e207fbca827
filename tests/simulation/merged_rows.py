"""Checks of "every row exactly once" for the models of simulated servers."""

from collections import Counter

from tests.simulation.audit import check
from tests.simulation.server_engine import MergedModel, TrainedRows
from tests.simulation.simulated_servers import ServersWorld, engine_of


def check_models(world: ServersWorld) -> None:
    """Check that all servers have one model, which contains each row that was trained on once."""
    engines = [engine_of(process) for process in world.processes.values()]
    check(bool(engines), "no server is left")
    models = {id(each.merged) for each in engines if each.merged.before}
    check(len(models) == 1, f"{len(engines)} servers end with {len(models)} models")
    unmerged = sum(bool(each.change) for each in engines)
    check(not unmerged, f"{unmerged} servers end with rows that are not merged")
    rows = rows_of(engines[0].merged)
    check_rows(rows, world.state.plan.train_rows, world.state.progress.rows)


def rows_of(model: MergedModel | None) -> list[TrainedRows]:
    """All rows whose updates the model contains, in order."""
    rows: list[TrainedRows] = []
    while model is not None:
        rows += model.added
        model = model.before
    return sorted(rows)


def check_rows(rows: list[TrainedRows], train_rows: int, total: int) -> None:
    """Check that sorted `rows` are whole epochs and a part of one, `total` rows in all."""
    counts, end = Counter[int](), (0, 0)
    for epoch, start, stop in rows:
        check((epoch, start) >= end, f"row {start} of epoch {epoch} was merged twice")
        end = epoch, stop
        counts[epoch] += stop - start
    for epoch in range(max(counts, default=0)):
        check(counts[epoch] == train_rows, f"{counts[epoch]} rows of epoch {epoch} were merged")
    merged = counts.total()
    check(merged == total, f"{merged} rows were merged, {total} trained on")
