"""Generated sets: the same rows each time, with the statistics that they are said to have."""

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("pandas")

from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from benchmarks.common import generated

ROWS = 4000


@pytest.mark.parametrize("name", generated.GENERATORS)
def test_a_set_is_written_once_and_always_has_the_same_rows(name, tmp_path, monkeypatch):
    monkeypatch.setenv("HOGBATCH_CACHE", str(tmp_path))
    path = generated.csv(name, 200)
    rows = path.read_text()
    path.unlink()
    assert generated.csv(name, 200).read_text() == rows and rows.count("\n") == 201
    path.write_text("kept")
    assert generated.csv(name, 200).read_text() == "kept"


def test_clicks_have_missing_heavy_tailed_numbers_and_categories_by_zipf_s_law():
    rows = generated.clicks(ROWS)
    assert rows.clicked.mean() == pytest.approx(generated.CLICK_RATE, abs=0.001)
    missing = rows.filter(regex="^n").isna().mean()
    assert missing.to_numpy() == pytest.approx(generated.MISSING, abs=0.03)
    assert (rows.n12.mean() > 5 * rows.n12.median()) and (rows.n0.max() < rows.n12.max())
    often = rows.c25.value_counts()
    assert often.iloc[0] > 0.01 * ROWS and (often == 1).sum() > 0.1 * ROWS
    assert rows.c0.nunique() == generated.VALUES[0]


def test_a_linear_model_separates_collisions_worse_than_trees_do():
    rows = generated.collisions(ROWS)
    x, y = rows.drop(columns="signal").to_numpy(), rows.signal.to_numpy()
    assert x.shape == (ROWS, 28) and y.mean() == pytest.approx(0.5, abs=0.001)
    train, test = np.split(np.arange(ROWS), 2)
    linear, trees = (
        roc_auc_score(y[test], model.fit(x[train], y[train]).predict_proba(x[test])[:, 1])
        for model in (LogisticRegression(max_iter=200), HistGradientBoostingClassifier(max_iter=50))
    )
    assert 0.5 < linear < trees - 0.03
