"""Ensembles: models with different seeds whose predictions are averaged."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import f1_score, log_loss, mean_squared_error

import hogbatch
from hogbatch.errors import UsageError
from hogbatch.estimators.classifier import HogbatchClassifier
from hogbatch.estimators.regressor import HogbatchRegressor
from hogbatch.run import members, small

MEMBERS = 3
PARTS = slice(60), slice(60, 90)  # validation and test rows, which do not depend on the seed
SETTINGS = {"hidden": (8,), "epochs": 4, "deterministic": True, "verbose": False}
PROGRAM = """
import os, signal, sys
import numpy as np
import hogbatch
from hogbatch.run import members

members._line = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # when the second one has finished
settings = {"hidden": (8,), "epochs": 4, "deterministic": True}
hogbatch.train(sys.argv[1], members=3, run_dir=sys.argv[2], **settings)
"""


def rows(kind, count=200):
    random = np.random.default_rng(0)
    X = random.normal(size=(count, 5))
    number = X[:, 0] + random.normal(size=count)
    return X, {"two classes": number > 0.3, "three": number.round().clip(-1, 1)}.get(kind, number)


def held_out(X, y):
    validation, test = PARTS
    sets = {"X_validation": X[validation], "y_validation": y[validation]}
    return SETTINGS | sets | {"X_test": X[test], "y_test": y[test]}


def tensors(model):
    return [model.tensors, *model.others]


def expect_equal(models, others):
    for one, other in zip(models, others, strict=True):
        for name, tensor in one.items():
            np.testing.assert_array_equal(tensor, other[name])


@pytest.mark.parametrize(
    ("kind", "side_by_side"), [("two classes", True), ("three", False), ("numbers", False)]
)
def test_the_prediction_is_the_mean_of_runs_with_these_seeds(kind, side_by_side, monkeypatch):
    """Trained side by side or not; loss and metrics are those of the mean."""
    X, y = rows(kind)
    settings = held_out(X, y) | ({"threshold": "f1"} if kind == "two classes" else {})
    if not side_by_side:
        monkeypatch.setattr(members, "is_small", lambda *_: False)
    run = hogbatch.train(X, y, seed=5, members=MEMBERS, **settings)
    alone = [hogbatch.train(X, y, seed=seed, **settings) for seed in range(5, 5 + MEMBERS)]
    expect_equal(tensors(run.model), [each.model.tensors for each in alone])
    assert run.summary["members"] == [
        {"seed": seed, "validation_loss": each.validation_loss}
        for seed, each in enumerate(alone, 5)
    ]
    predict = "predict" if kind == "numbers" else "predict_proba"
    mean = np.mean([getattr(each.model, predict)(X) for each in alone], axis=0)
    np.testing.assert_allclose(getattr(run.model, predict)(X), mean, atol=1e-6)
    if kind == "numbers":
        losses = [mean_squared_error(y[part], mean[part]) / 2 for part in PARTS]
    else:
        losses = [log_loss(y[part], mean[part]) for part in PARTS]
    np.testing.assert_allclose([run.validation_loss, run.test_loss], losses, rtol=1e-5)
    if kind == "two classes":
        found = f1_score(y[:60], mean[:60, 1] > run.model.threshold)
        assert found == max(f1_score(y[:60], mean[:60, 1] >= each) for each in mean[:60, 1])
        assert run.summary["validation"]["values"]["f1"] == pytest.approx(found)


@pytest.mark.parametrize("kind", ["two classes", "numbers"])
def test_few_rows_train_by_default_five_models_that_hold_out_different_ones(kind):
    """The validation results are those of the rows that each member has held out."""
    X, y = rows(kind, 300)
    chosen = {"threshold": "f1"} if kind == "two classes" else {}
    settings = SETTINGS | chosen | {"test_fraction": 0}
    run = hogbatch.train(X, y, seed=4, **settings)
    first = hogbatch.train(X, y, seed=4, members=1, **settings)
    expect_equal([first.model.tensors], [run.model.tensors])
    assert len(run.summary["members"]) == 5
    losses = [each["validation_loss"] for each in run.summary["members"]]
    assert losses[0] == first.validation_loss
    assert run.validation_loss == pytest.approx(np.mean(losses), rel=1e-5)
    if kind == "two classes":
        assert 0 < run.model.threshold < 1 and run.model.threshold == run.summary["threshold"]
    more = hogbatch.train(X, y, seed=4, members=7, **settings).model
    expect_equal(tensors(run.model), tensors(more)[:5])
    estimator = HogbatchClassifier if kind == "two classes" else HogbatchRegressor
    assert len(estimator(hidden=(8,), epochs=1).fit(X, y).model_.members) == 5


SINGLE = {"hidden": ()}, {"epochs": None, "max_seconds": 0.01, "deterministic": False}
UNSUITED = (
    *SINGLE,
    *({"keep": "last"}, {"refit": True}, {"max_rows": 50}, {"target_loss": 9.0}),
    *({"validation_fraction": 0}, {"workers": "cpu:1", "deterministic": False}),
)


@pytest.mark.parametrize("given", UNSUITED, ids=lambda given: " ".join(given))
def test_settings_of_a_single_model_train_one_by_default(given):
    X, y = rows("three", 150)
    assert hogbatch.train(X, y, **SETTINGS | given).model.others == ()


@pytest.mark.parametrize("count", [99, 100])
def test_fewer_than_a_hundred_rows_train_one_model_by_default(count):
    run = hogbatch.train(*rows("three", count), test_fraction=0, **SETTINGS)
    assert len(run.model.members) == (1 if count < 100 else 5)


@pytest.mark.parametrize("cheap", [True, False])
def test_from_10_000_rows_on_members_are_cheap_linear_models_by_default(cheap, monkeypatch):
    """Estimators of classes have the same members, or train one model on all rows."""
    random = np.random.default_rng(0)
    X, y = sparse.random(10_000, 10_100, 1e-3, "csr", rng=random), random.integers(2, size=10_000)
    if not cheap:
        monkeypatch.setattr(small, "LINEAR_MEMBER", 0)
    count, run = 5 if cheap else 1, hogbatch.train(X, y, test_fraction=0, epochs=1, verbose=False)
    assert len(run.model.members) == count and run.model.network.hidden == ()
    model = HogbatchClassifier(epochs=1).fit(X, y)
    assert len(model.model_.members) == count and bool(model.validation_scores_) == cheap
    network = hogbatch.train(X, y, hidden=(2,), test_fraction=0, epochs=1, verbose=False)
    assert network.model.others == ()
    for single in (HogbatchClassifier(epochs=1, members=1), HogbatchRegressor(epochs=1)):
        single.fit(X, y)
        assert single.model_.others == () and single.validation_scores_ == []


@pytest.mark.parametrize("case", ["constant rate", "falling rate", "dense"])
def test_from_10_000_rows_on_classifiers_hold_out_sparse_rows_if_the_rate_does_not_fall(case):
    """Networks on sparse rows overfit in the last epochs; with others, held-out rows are lost."""
    random = np.random.default_rng(0)
    X, y = sparse.random(10_000, 50, 0.1, "csr", rng=random), random.integers(2, size=10_000)
    settings = {"hidden": (2,), "epochs": 2}
    settings |= {"falling rate": {"schedule": "cosine"}, "dense": {"lr": 0.01}}.get(case, {})
    X = X.toarray() if case == "dense" else X
    held_out = case == "constant rate"
    for given in ({}, {"members": 1}, {"threshold": "f1"} if held_out else {}):
        model = HogbatchClassifier(**settings, **given).fit(X, y)
        assert bool(model.validation_scores_) == held_out
    five = HogbatchClassifier(**settings, members=5).fit(X, y)
    assert len(five.model_.members) == 5 and five.validation_scores_ == []
    assert HogbatchRegressor(**settings).fit(X, y).validation_scores_ == []


def test_a_run_of_one_model_is_not_an_ensemble():
    X, y = rows("three")
    run = hogbatch.train(X, y, members=1, **SETTINGS)
    assert "members" not in run.summary and run.model.others == ()


def test_an_ensemble_that_was_killed_goes_on_and_its_file_is_read_by_other_programs(tmp_path, main):
    X, y = rows("two classes")
    np.savez(tmp_path / "rows.npz", X=X, y=y.astype(int))
    data, run_dir = str(tmp_path / "rows.npz"), tmp_path / "run"
    killed = subprocess.run([sys.executable, "-c", PROGRAM, data, run_dir])
    assert killed.returncode == -signal.SIGKILL
    finished = run_dir / "members" / "2" / "events.jsonl"
    leases = finished.read_text().count('"event": "lease')
    assert leases and not (run_dir / "model.safetensors").exists()
    run = hogbatch.train(data, resume=run_dir, run_dir=run_dir, members=MEMBERS, **SETTINGS)
    events = finished.read_text()
    assert '"event": "resumed"' in events and events.count('"event": "lease') == leases
    expect_equal(
        tensors(run.model), tensors(hogbatch.train(data, members=MEMBERS, **SETTINGS).model)
    )
    file = run_dir / "model.safetensors"
    expect_equal(tensors(hogbatch.load_model(file)), tensors(run.model))
    predicted = main("predict", file, data, "--proba").stdout
    np.testing.assert_allclose(
        np.loadtxt(predicted.splitlines()), run.model.predict_proba(X), atol=1e-5
    )
    assert main("report", run_dir).returncode == 0
    report = (run_dir / "report.html").read_text()
    assert "Calibration on the test set" in report, "its loss is the one that was recorded"


def test_a_request_to_end_the_run_ends_all_members(tmp_path):
    X, y = rows("three")
    settings = SETTINGS | {"epochs": 100_000, "run_dir": tmp_path, "members": 30}
    stopped = hogbatch.train(X, y, on_evaluation=lambda _: True, **settings)
    assert stopped.status == json.loads((tmp_path / "summary.json").read_text())["status"]
    assert stopped.status == "stopped" and len(tensors(stopped.model)) < 30
    run = hogbatch.train(X, y, **settings | {"epochs": 1, "resume": tmp_path, "members": 2})
    assert run.status == "finished" and len(tensors(run.model)) == 2
    hogbatch.train(X, y, **settings | {"epochs": 1, "overwrite": True, "members": 1})
    assert (tmp_path / "previous-run/members/2").is_dir() and not (tmp_path / "members").exists()


def test_estimators_take_members():
    X, y = rows("three")
    model = HogbatchClassifier(hidden=(8,), epochs=2, members=2, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), model.model_.predict_proba(X), atol=1e-6)
    with pytest.raises(UsageError, match="partial_fit, warm_start: expected members=1; got 2"):
        model.partial_fit(X, y)
    model = HogbatchClassifier(hidden=(8,), epochs=2).fit(X, y)
    with pytest.raises(UsageError, match="partial_fit, warm_start: expected members=1; got 5"):
        model.partial_fit(X, y)
    model = HogbatchClassifier(hidden=(8,), epochs=2, warm_start=True).fit(X, y)
    assert model.fit(X, y).model_.others == ()
    linear = HogbatchClassifier(hidden=(), epochs=1, members=2).fit(X, y)
    with pytest.raises(AttributeError, match="members=1"):
        _ = linear.coef_


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"refit": True}, "--refit leaves no validation rows .* --members"),
        ({"cluster": "local", "servers": 2}, "--members has no meaning with --cluster"),
        ({"members": 0}, "members must be above 0; got 0"),
    ],
)
def test_settings_of_one_model_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        hogbatch.train("a9a", verbose=False, **{"members": 2} | settings)


def test_an_ensemble_is_not_continued_by_init(tmp_path):
    X, y = rows("three")
    hogbatch.train(X, y, members=2, **SETTINGS).save(tmp_path / "two")
    with pytest.raises(UsageError, match=r"--init continues one model: .* got 2 in"):
        hogbatch.train(X, y, init=tmp_path / "two", verbose=False)
