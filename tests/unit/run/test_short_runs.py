import numpy as np
import pytest

from hogbatch.config.train import TrainConfig
from hogbatch.data.load import load
from hogbatch.data.raw import ReadOptions
from hogbatch.data.source import ARRAYS
from hogbatch.run.arrays import GivenArrays
from hogbatch.run.short_runs import mean_errors
from hogbatch.views.console import PlainConsole

ROWS = 300


@pytest.mark.parametrize(("groups", "apart"), [(40, True), (5, False)])
def test_short_runs_hold_out_whole_groups(groups, apart, tmp_path):
    """Fewer groups than parts do not divide the rows: one part would be empty."""
    random = np.random.default_rng(0)
    rows = zip(random.integers(groups, size=300), random.random(300), strict=True)
    path = tmp_path / "a.csv"
    path.write_text("g,x,y\n" + "".join(f"{n},{x},{n % 3}\n" for n, x in rows))
    data = load(path, options=ReadOptions(group="g"), scale="none")
    held_out = []

    def execute(config, platform, read, *, temporary):
        sets = read().sets
        assert sets["train"].rows + sets["validation"].rows == 200
        own, other = (sets[name].inputs.dense[:, 0] for name in ("train", "validation"))
        held_out.append(not len(np.intersect1d(own, other)))

    assert mean_errors([(TrainConfig(), data)], lambda _: 1.0, execute, (0, 1), 200) == [1.0]
    assert held_out == [apart, apart]


def test_short_runs_have_their_own_rows_only():
    """Found: short runs that compare other labels or features again, on all rows."""
    random = np.random.default_rng(0)
    hours = random.integers(24, size=2000)
    X = {"hour": hours, "size": random.random(2000)}
    y = np.exp(random.normal(size=2000) + hours % 5)
    data = GivenArrays(X, y).load(TrainConfig(data=ARRAYS), PlainConsole(quiet=True))
    assert data.in_logs is not None
    assert data.with_values is not None

    def execute(config, platform, read, *, temporary):
        assert read().in_logs is None
        assert read().with_values is None

    assert mean_errors([(TrainConfig(), data)], lambda _: 1.0, execute) == [1.0]
