"""The metrics of runs are those of scikit-learn on the scores of the saved model."""

import numpy as np
import pytest
from sklearn import metrics as sk

import hogbatch
from hogbatch.config.losses import LOSSES
from hogbatch.config.metrics import fitting
from hogbatch.errors import UsageError
from hogbatch.model.prediction import DataFile, evaluate_file
from hogbatch.run import measure

FEATURES, ROWS, LABELS = 6, 400, 4
QUICK = {"hidden": (8,), "epochs": 2, "seed": 0, "verbose": False, "scale": "none"}


def rows(seed):
    """Rows with noisy sums of their features, of which labels are made."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((ROWS, FEATURES)).astype(np.float32)
    weights = np.random.default_rng(9).standard_normal((FEATURES, LABELS))
    return X, X @ weights + random.standard_normal((ROWS, LABELS))


def softmax(scores):
    fractions = np.exp(scores - scores.max(axis=1, keepdims=True))
    return fractions / fractions.sum(axis=1, keepdims=True)


CASES = {  # loss: labels from sums, a metric, scikit-learn's value from labels and scores
    "logistic": (lambda z: z[:, 0] > 0, "auc", sk.roc_auc_score),
    "softmax": (
        lambda z: z.argmax(axis=1),
        "average_precision",
        lambda y, scores: sk.average_precision_score(y, softmax(scores)),
    ),
    "squared": (lambda z: 3 + 20 * z[:, 0], "mae", sk.mean_absolute_error),
    "multilabel": (
        lambda z: (z > 0).astype(np.uint8),
        "nDCG@3",
        lambda y, scores: sk.ndcg_score(y, scores, k=3),
    ),
}


def check(loss, **settings):
    """Train, and compare the metric of the validation and of the test rows."""
    labels, metric, value = CASES[loss]
    (X, z), (X_test, z_test) = rows(0), rows(1)
    data = {"X_validation": X_test, "y_validation": labels(z_test), "metric": metric}
    test = {"X_test": X_test, "y_test": labels(z_test)}
    run = hogbatch.train(X, labels(z), **data, **test, **QUICK, **settings)
    scores = run.model.scores(X_test, np.float64)
    if loss == "squared":
        scores = scores * run.model.encoding.scale + run.model.encoding.offset
    expected = value(labels(z_test), scores[:, 0] if scores.shape[1] == 1 else scores)
    for name in ("validation", "test"):
        assert run.summary[name]["value"] == pytest.approx(expected, abs=1e-5)
        assert run.summary[name]["metric"] == metric
    assert {*run.summary["test"]["values"]} == {each.name for each in fitting(LOSSES[loss])}


@pytest.mark.parametrize("loss", CASES)
def test_metrics_of_runs_in_this_process(loss):
    check(loss)


@pytest.mark.slow
def test_metrics_of_a_cpu_and_a_gpu_that_evaluate_together():
    check("softmax", workers="cpu:2,gpu:host", policy="fixed", cpu_batch="16", gpu_batch="50")


def test_without_test_rows_all_metrics_of_the_kept_model_are_those_of_the_validation_rows():
    (X, z), (X_held, z_held) = rows(0), rows(1)
    labels, metric, value = CASES["softmax"]
    held = {"X_validation": X_held, "y_validation": labels(z_held), "test_fraction": 0.0}
    overfits = {"hidden": (64,), "epochs": 40, "lr": 0.3, "deterministic": True}
    run = hogbatch.train(X[:40], labels(z)[:40], **held, **{**QUICK, **overfits})
    assert run.summary["saved"]["epochs"] < run.summary["epochs"]
    values = run.summary["validation"]["values"]
    assert {*values} == {each.name for each in fitting(LOSSES["softmax"])}
    expected = value(labels(z_held), run.model.scores(X_held, np.float64))
    assert values[metric] == pytest.approx(expected, abs=1e-5)
    assert {*run.summary["history"][-1]["validation_values"]} == {"accuracy"}


def test_a_metric_that_does_not_fit_is_refused():
    X, z = rows(0)
    with pytest.raises(UsageError, match=r"--metric auc cannot .* squared; .* loss, rmse, mae, r2"):
        hogbatch.train(X, z[:, 0], metric="auc", **QUICK)
    with pytest.raises(UsageError, match="needs validation rows"):
        hogbatch.train(X, z[:, 0] > 0, metric="auc", validation_fraction=0.0, **QUICK)


def test_the_temperature_has_the_lowest_validation_loss_and_changes_no_prediction(tmp_path):
    (X, y), (X_validation, y_validation), (X_test, y_test) = (
        (each, z.argmax(axis=1)) for each, z in map(rows, range(3))
    )
    data = {"X_validation": X_validation, "y_validation": y_validation}
    data |= {"X_test": X_test, "y_test": y_test}
    settings = QUICK | {"deterministic": True, "label_smoothing": 0.3, "metric": "brier"}
    plain = hogbatch.train(X, y, **data, **settings)
    run = hogbatch.train(X, y, **data, **settings, temperature="auto", run_dir=str(tmp_path))
    summary, temperature = run.summary, run.summary["temperature"]
    assert plain.summary["temperature"] is None and 0 < temperature < 1
    scores = plain.model.scores(X_test)
    assert (run.model.predict(X_test) == plain.model.predict(X_test)).all()
    np.testing.assert_allclose(run.model.scores(X_test), scores / temperature, rtol=1e-4, atol=1e-4)
    for name, held, labels in (
        ("validation", X_validation, y_validation),
        ("test", X_test, y_test),
    ):
        found, likely = summary[name], run.model.predict_proba(held)
        assert found["loss"] == pytest.approx(sk.log_loss(labels, likely), abs=1e-5)
        squares = ((likely - np.eye(LABELS)[labels]) ** 2).sum(axis=1)
        assert found["values"]["brier"] == pytest.approx(squares.mean(), abs=1e-5)
    assert summary["validation"]["loss"] < plain.summary["validation"]["loss"] - 0.01
    assert (
        f"divided by the temperature {temperature:.4g}" in (tmp_path / "events.jsonl").read_text()
    )

    resumed = hogbatch.train(X, y, **data, resume=str(tmp_path), verbose=False)
    assert resumed.summary["temperature"] == temperature
    np.testing.assert_array_equal(resumed.model.scores(X_test), run.model.scores(X_test))


def test_the_temperature_is_chosen_once_from_the_scores_of_the_kept_model(monkeypatch):
    """Training waits while a model is kept, so that is not done each time."""
    losses = []

    def best_temperature(scored):
        losses.append(measure.measure(scored, "log_loss")["log_loss"])
        return 2.0

    monkeypatch.setattr(measure, "best_temperature", best_temperature)
    X, z = rows(0)
    settings = QUICK | {"epochs": 40, "lr": 0.3, "members": 1, "deterministic": True}
    history = hogbatch.train(X, z.argmax(axis=1), **settings, temperature="auto").summary["history"]
    validation = [each["validation_loss"] for each in history]
    assert validation[1] < validation[0] and min(validation) < validation[-1], "the last is not it"
    assert losses == [pytest.approx(min(validation), abs=1e-5)]


@pytest.mark.parametrize("classes", [2, 4])
def test_a_model_of_smoothed_labels_is_as_uncertain_as_they_are(classes):
    """Each column of X belongs to one class, so that the model can be certain."""
    X, y = np.repeat(np.eye(classes), 60, axis=0), np.repeat(np.arange(classes), 60)
    settings = QUICK | {"hidden": (), "epochs": 40, "l2": 0, "test_fraction": 0}
    run = hogbatch.train(X, y, **settings, label_smoothing=0.4)
    likely = 1 - 0.4 + 0.4 / classes
    np.testing.assert_allclose(run.model.predict_proba(X)[np.arange(len(y)), y], likely, atol=0.03)
    for loss in (run.summary["train_loss"], run.validation_loss):
        assert loss == pytest.approx(-np.log(likely), abs=0.05), "of the labels themselves"


def test_the_decision_threshold_is_the_best_one_of_the_validation_rows(tmp_path):
    run_dir = tmp_path / "run"
    (X, y), *held = ((each, z[:, 0] > 3) for each, z in map(rows, range(3)))
    (X_validation, y_validation), (X_test, y_test) = held
    data = {"X_validation": X_validation, "y_validation": y_validation}
    data |= {"X_test": X_test, "y_test": y_test}
    settings = QUICK | {"threshold": "f1", "deterministic": True}
    run = hogbatch.train(X, y, **data, **settings, run_dir=str(run_dir))
    model, summary = hogbatch.load_model(run_dir / "model.safetensors"), run.summary
    likely = model.predict_proba(X_validation)[:, 1]
    best = max(sk.f1_score(y_validation, likely > each) for each in likely)
    assert summary["validation"]["values"]["f1"] == pytest.approx(best, abs=1e-9)
    assert model.threshold == run.model.threshold == summary["threshold"] != 0.5
    predicted = model.predict(X_test)
    assert (predicted == (model.predict_proba(X_test)[:, 1] > model.threshold)).all()
    expected = {"f1": sk.f1_score(y_test, predicted), "accuracy": (predicted == y_test).mean()}
    np.savez(tmp_path / "test.npz", X=X_test, y=y_test)
    evaluated = evaluate_file(str(run_dir / "model.safetensors"), DataFile(tmp_path / "test.npz"))
    for values in (summary["test"]["values"], evaluated):
        assert {each: values[each] for each in expected} == pytest.approx(expected)
    text = f"the validation f1 is highest at the decision threshold {model.threshold:.4g}"
    assert text in (run_dir / "events.jsonl").read_text()

    resumed = hogbatch.train(X, y, **data, resume=str(run_dir), verbose=False)
    assert resumed.summary["threshold"] == model.threshold
    assert resumed.summary["validation"] == summary["validation"]
