"""Rows that are missing or merged twice are found in the models of simulated servers."""

from types import SimpleNamespace

import pytest

from tests.simulation import merged_rows
from tests.simulation.audit import InvariantViolation
from tests.simulation.merged_rows import check_models, check_rows
from tests.simulation.server_engine import MergedModel, TrainedRows

ONE, TWO = TrainedRows(0, 0, 10), TrainedRows(0, 10, 20)


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([(0, 0, 10), (0, 5, 10)], "row 5 of epoch 0 was merged twice"),
        ([(0, 0, 10), (0, 0, 10)], "merged twice"),
        ([(0, 0, 9), (1, 0, 10)], "9 rows of epoch 0"),
        ([(0, 0, 10), (2, 0, 10)], "0 rows of epoch 1"),
        ([(0, 0, 10), (1, 0, 5)], "15 rows were merged, 20 trained on"),
        ([], "0 rows were merged, 20 trained on"),
    ],
)
def test_rows_that_are_missing_or_merged_twice_are_found(rows, found):
    with pytest.raises(InvariantViolation, match=found):
        check_rows([TrainedRows(*each) for each in rows], 10, 20)
    check_rows([TrainedRows(*each) for each in [(0, 0, 4), (0, 4, 10), (1, 0, 10)]], 10, 20)


def test_servers_that_end_with_different_models_are_found(monkeypatch):
    monkeypatch.setattr(merged_rows, "engine_of", lambda process: process.engine)
    engines = [SimpleNamespace(change=[rows], merged=MergedModel()) for rows in (ONE, TWO)]
    first, second = engines
    state = SimpleNamespace(plan=SimpleNamespace(train_rows=20), progress=SimpleNamespace(rows=20))
    processes = {number: SimpleNamespace(engine=each) for number, each in enumerate(engines)}
    world = SimpleNamespace(processes=processes, state=state)
    first.change, first.merged = [], MergedModel(MergedModel(), (ONE, TWO))
    second.merged = first.merged
    with pytest.raises(InvariantViolation, match="1 servers end with rows that are not merged"):
        check_models(world)
    second.change = []
    check_models(world)
    second.merged = MergedModel(MergedModel(), (ONE, TWO))
    with pytest.raises(InvariantViolation, match="2 servers end with 2 models"):
        check_models(world)
    processes.clear()
    with pytest.raises(InvariantViolation, match="no server is left"):
        check_models(world)
