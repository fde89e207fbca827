import numpy as np
import pytest

from hogbatch.config.train import TrainConfig
from hogbatch.data.load import load
from hogbatch.data.raw import ReadOptions
from hogbatch.run.short_runs import mean_errors

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
