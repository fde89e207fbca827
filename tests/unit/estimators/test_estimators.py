"""The estimators in the tools of scikit-learn, and where scikit-learn runs them."""

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading

import joblib
import numpy as np
import pandas
import pytest
import scipy.sparse
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import hogbatch
from hogbatch import HogbatchClassifier, HogbatchMultilabel, HogbatchRegressor
from hogbatch.errors import UsageError
from hogbatch.model.file import save_model
from tests.support.descriptors import open_descriptors

ROWS, FEATURES = 300, 6
EARLY = {"early_stopping": True}
FAST = {"hidden": (16,), "epochs": 40, "lr": 0.05, "random_state": 0, "early_stopping": False}


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(1).normal(size=(ROWS, FEATURES))


@pytest.fixture(scope="module")
def classes(X):
    return np.array(["low", "mid", "top"])[np.digitize(X[:, 0] + X[:, 1], [-0.6, 0.6])]


@pytest.fixture(scope="module")
def marks(X):
    return (X[:, :4] + X[:, 1:5] > 0).astype(int)


@pytest.fixture(scope="module")
def fitted(X, classes):
    return HogbatchClassifier(**FAST).fit(X, classes)


class TestClassifier:
    def test_classes_may_be_text_numbers_or_booleans(self, X):
        for y in (X[:, 0] > 0, np.where(X[:, 0] > 0, "yes", "no"), np.where(X[:, 0] > 0, 7, -2)):
            model = HogbatchClassifier(**FAST).fit(X, y)
            assert model.score(X, y) > 0.95
            assert model.classes_.tolist() == np.unique(y).tolist()
            assert model.predict(X).dtype == y.dtype
            assert model.decision_function(X).shape == (ROWS,)

    def test_whole_numbers_that_float64_cannot_hold_are_classes(self, X):
        y = 2**53 - 1 + np.digitize(X[:, 0] + X[:, 1], [-0.6, 0.6])
        model = HogbatchClassifier(**FAST).fit(X, y)
        assert model.score(X, y) > 0.9
        assert model.model_.predict(X).tolist() == model.predict(X).tolist()

    def test_several_classes(self, fitted, X, classes):
        assert fitted.score(X, classes) > 0.85
        proba = fitted.predict_proba(X)
        assert proba.dtype == np.float64 and proba.shape == (ROWS, 3)
        np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-12)
        np.testing.assert_allclose(np.exp(fitted.predict_log_proba(X)), proba)
        assert (fitted.classes_[proba.argmax(axis=1)] == fitted.predict(X)).all()
        assert fitted.decision_function(X).shape == (ROWS, 3)

    def test_training_is_recorded(self, fitted):
        assert (len(fitted.loss_curve_), fitted.n_iter_) == (40, 40)
        assert fitted.loss_curve_[-1] < fitted.loss_curve_[0] / 2
        assert fitted.n_features_in_ == FEATURES

    def test_equal_seeds_give_equal_models_and_others_do_not(self, fitted, X, classes):
        scores = [
            HogbatchClassifier(**FAST | {"random_state": seed}).fit(X, classes).predict_proba(X)
            for seed in (0, 1)
        ]
        np.testing.assert_array_equal(scores[0], fitted.predict_proba(X))
        assert not np.array_equal(*scores)
        models = []
        for _ in range(2):  # the global seed decides if there is no other
            np.random.seed(7)
            models.append(HogbatchClassifier(hidden=(), epochs=2).fit(X, classes))
        np.testing.assert_array_equal(*(model.predict_proba(X) for model in models))

    def test_sparse_rows_of_any_format(self, X, classes):
        rows = np.where(np.abs(X) > 0.3, X, 0)
        for kind in (scipy.sparse.csr_array, scipy.sparse.csc_matrix):
            model = HogbatchClassifier(**FAST).fit(kind(rows), classes)
            np.testing.assert_allclose(model.predict_proba(kind(rows)), model.predict_proba(rows))
            assert model.score(kind(rows), classes) > 0.8

    def test_weights_of_classes_and_rows(self, X):
        y = np.random.default_rng(0).random(ROWS) < 0.2  # X does not help
        few = HogbatchClassifier(**FAST | {"hidden": ()}).fit(X, y)
        balanced = HogbatchClassifier(**FAST | {"hidden": ()}, class_weight="balanced").fit(X, y)
        by_row = HogbatchClassifier(**FAST | {"hidden": ()}).fit(X, y, np.where(y, 4.0, 1.0))
        means = [each.predict_proba(X)[:, 1].mean() for each in (few, balanced, by_row)]
        assert means[0] == pytest.approx(0.2, abs=0.06)
        assert means[1:] == pytest.approx([0.5, 0.5], abs=0.08)

    def test_early_stopping_keeps_the_best_model(self, X):
        y = X[:, 0] + np.random.default_rng(0).normal(size=ROWS) > 0  # noise, to overfit
        settings = {"hidden": (16,), "epochs": 500, "lr": 0.2, "random_state": 0, "members": 1}
        early = {"early_stopping": True, "n_iter_no_change": 5, "validation_fraction": 0.3}
        model = HogbatchClassifier(**settings | early).fit(X, y)
        losses = model.validation_scores_
        assert model.n_iter_ == len(model.loss_curve_) == len(losses) < 500
        assert min(losses) == losses[-6] < losses[-1]
        best = HogbatchClassifier(**settings | early | {"epochs": model.n_iter_ - 5}).fit(X, y)
        np.testing.assert_array_equal(model.predict_proba(X), best.predict_proba(X))

    def test_refit_trains_on_all_rows_for_the_number_of_rows_of_the_best_model(self, X):
        y = X[:, 0] + np.random.default_rng(0).normal(size=ROWS) > 0
        settings = {"hidden": (16,), "lr": 0.2}
        early = EARLY | {"epochs": 30, "validation_fraction": 0.3}
        model = HogbatchClassifier(**settings, **early, refit=True, random_state=0).fit(X, y)
        losses = model.validation_scores_
        assert len(model.loss_curve_) == len(losses) > np.argmin(losses) + 1
        best = int(0.7 * ROWS) * (int(np.argmin(losses)) + 1)
        assert model.n_iter_ == round(best / ROWS)
        all_rows = {"test_fraction": 0, "validation_fraction": 0, "deterministic": True}
        seed = int(np.random.RandomState(0).randint(np.iinfo(np.int32).max))
        run = hogbatch.train(X, y, max_rows=best, seed=seed, **all_rows, **settings, verbose=False)
        found = model.model_.predict_proba(X)
        np.testing.assert_array_equal(found, run.model.predict_proba(X))

    def test_the_threshold_is_chosen_on_the_rows_of_early_stopping(self, X):
        y, settings = X[:, 0] > 1, FAST | {"hidden": (), "epochs": 2, "threshold": "f1"}
        model = HogbatchClassifier(**settings | EARLY).fit(X, y)
        assert model.model_.threshold != 0.5
        likely = model.predict_proba(X)[:, 1]
        np.testing.assert_array_equal(model.predict(X), likely > model.model_.threshold)
        with pytest.raises(UsageError, match="--threshold f1 needs validation rows; there are no"):
            HogbatchClassifier(**settings).fit(X, y)

    def test_without_early_stopping_all_rows_are_trained_on(self, fitted, X, classes):
        assert fitted.validation_scores_ == []
        unused = {"n_iter_no_change": 1, "validation_fraction": 0.5}
        model = HogbatchClassifier(**FAST | unused).fit(X, classes)
        np.testing.assert_array_equal(model.predict_proba(X), fitted.predict_proba(X))

    def test_the_model_is_one_of_hogbatch(self, X, classes, tmp_path):
        frame = pandas.DataFrame(X, columns=[*"abcdef"])
        estimator = HogbatchClassifier(**FAST).fit(frame, classes)
        assert estimator.feature_names_in_.tolist() == [*"abcdef"]
        save_model(estimator.model_, tmp_path / "m.safetensors")
        model = hogbatch.load_model(tmp_path / "m.safetensors")
        assert model.predict(frame[[*"fedcba"]]).tolist() == estimator.predict(frame).tolist()

    @pytest.mark.parametrize(
        ("settings", "y", "message"),
        [
            ({"hidden": "wide"}, [0, 1], "hidden"),
            ({"activation": "gelu"}, [0, 1], "activation"),
            ({"epochs": 0}, [0, 1], "epochs must be above 0; got 0"),
            (
                {**EARLY, "validation_fraction": 1.0},
                [0, 1],
                "validation_fraction == 1.0, must be <",
            ),
            ({**EARLY, "n_iter_no_change": 0}, [0, 1], "n_iter_no_change == 0, must be >= 1"),
            (
                {**EARLY, "n_iter_no_change": 5, "validation_fraction": 0.1},
                [0, 1],
                "there are none",
            ),
            ({"early_stopping": "on"}, [0, 1], "must be True, False or \"auto\"; got 'on'"),
            ({}, [1, 1], "expected at least two classes; got one class: 1"),
            ({}, [0, 1, 2], "inconsistent numbers of samples"),
        ],
    )
    def test_what_cannot_be_used_is_refused_in_fit(self, settings, y, message):
        estimator = HogbatchClassifier(**settings)
        with pytest.raises(ValueError, match=message):
            estimator.fit([[0.0], [1.0]], y)
        with pytest.raises(NotFittedError):
            estimator.predict([[0.0]])


class TestRegressor:
    def test_predictions_are_in_the_unit_of_the_labels(self, X):
        y = 1e6 + 1e4 * (X[:, 0] - X[:, 1])
        model = HogbatchRegressor(**FAST).fit(X, y)
        assert model.score(X, y) > 0.98 and model.predict(X).dtype == np.float64
        assert not hasattr(model, "predict_proba")


class TestMultilabel:
    def test_a_matrix_a_sparse_matrix_and_lists_are_the_same_labels(self, X, marks):
        lists = [np.flatnonzero(row).tolist() for row in marks]
        scores = []
        for y in (marks, scipy.sparse.csr_array(marks), lists):
            model = HogbatchMultilabel(**FAST).fit(X, y)
            scores.append(model.decision_function(X))
            predicted = model.predict(X)
            assert scipy.sparse.issparse(predicted) == scipy.sparse.issparse(y)
            dense = predicted.toarray() if scipy.sparse.issparse(predicted) else predicted
            np.testing.assert_array_equal(dense, scores[-1] > 0)
            assert (dense == marks).mean() > 0.9
            np.testing.assert_array_equal(model.predict_proba(X) > 0.5, scores[-1] > 0)
        np.testing.assert_array_equal(scores[0], scores[1])
        np.testing.assert_array_equal(scores[0], scores[2])

    def test_one_class_per_row_is_refused(self, X, classes):
        with pytest.raises(ValueError, match="one label per row, for which there is HogbatchClass"):
            HogbatchMultilabel().fit(X, classes)


class TestMoreTraining:
    def test_warm_start_continues_and_a_second_fit_without_it_begins_anew(self, X, classes):
        model = HogbatchClassifier(**FAST | {"epochs": 5}, warm_start=True).fit(X, classes)
        first = model.loss_curve_[-1]
        model.fit(X, classes)
        assert (model.n_iter_, len(model.loss_curve_)) == (10, 10)
        assert model.loss_curve_[5] < first * 1.1
        copy = pickle.loads(pickle.dumps(model))
        scores = [each.fit(X, classes).predict_proba(X) for each in (model, copy)]
        np.testing.assert_array_equal(*scores)
        with pytest.raises(ValueError, match="it has another network or optimizer"):
            copy.set_params(optimizer="sgd").fit(X, classes)
        model.set_params(warm_start=False).fit(X, classes)
        assert model.n_iter_ == 5 and model.loss_curve_[-1] == pytest.approx(first)

    def test_partial_fit_knows_its_classes_from_the_first_call_on(self, X, classes):
        with pytest.raises(ValueError, match="the first partial_fit needs all classes"):
            HogbatchClassifier().partial_fit(X, classes)
        model = HogbatchClassifier(**FAST)
        model.partial_fit(X[:10], np.full(10, "low"), classes=["low", "mid", "top"])
        model.partial_fit(X, classes)
        with pytest.raises(ValueError, match=r"expected classes .*; got .*'new'"):
            model.partial_fit(X[:1], ["new"])
        with pytest.raises(ValueError, match="expected those of the first call"):
            model.partial_fit(X, classes, classes=["low", "mid"])
        assert model.n_iter_ == 2

    def test_the_layers_do_not_follow_from_the_number_of_rows_of_a_partial_fit(self):
        marked = np.arange(1000).reshape(20, 50) % 7 == 0
        rows, y = scipy.sparse.csr_array(marked.astype(float)), np.arange(20) % 2
        settings = {"epochs": 1, "random_state": 0}
        part = HogbatchClassifier(**settings).partial_fit(rows, y, classes=[0, 1])
        whole = HogbatchClassifier(**settings).fit(rows, y)
        hidden = [each.model_.network.hidden for each in (part, whole)]
        assert hidden == [(512, 512), ()]

    def test_partial_fit_keeps_the_names_of_columns_and_the_form_of_labels(self, X, marks, classes):
        frame = pandas.DataFrame(X, columns=[*"abcdef"])
        model = HogbatchRegressor(hidden=()).partial_fit(frame, X[:, 0])
        model.partial_fit(frame, X[:, 0])
        assert model.feature_names_in_.tolist() == [*"abcdef"]
        with pytest.raises(ValueError, match="feature names"):
            model.partial_fit(frame[[*"fedcba"]], X[:, 0])

    def test_partial_fit_of_lists_and_numbers(self, X, marks):
        lists = [np.flatnonzero(row).tolist() for row in marks]
        model = HogbatchMultilabel(hidden=(), lr=0.3, random_state=0).partial_fit(
            X[:1], lists[:1], classes=range(4)
        )
        for _ in range(10):
            model.partial_fit(X, lists)
        assert (model.predict(X) == marks).mean() > 0.8
        with pytest.raises(
            ValueError, match="X has 3 features, but HogbatchMultilabel is expecting"
        ):
            model.partial_fit(X[:, :3], lists)
        regressor = HogbatchRegressor(hidden=(), lr=0.3, random_state=0)
        for _ in range(10):
            regressor.partial_fit(X, X[:, 0] * 5)
        assert regressor.score(X, X[:, 0] * 5) > 0.8


class TestTools:
    def test_pickled_and_cloned(self, fitted, X):
        copy = pickle.loads(pickle.dumps(fitted))
        np.testing.assert_array_equal(copy.predict_proba(X), fitted.predict_proba(X))
        assert clone(fitted).get_params() == fitted.get_params()
        with pytest.raises(NotFittedError):
            clone(fitted).predict(X)

    def test_in_a_pipeline_with_a_column_transformer(self, X, classes):
        frame = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "kind": classes})
        columns = make_column_transformer(
            (StandardScaler(), ["a", "b"]), (OneHotEncoder(), ["kind"])
        )
        model = make_pipeline(columns, HogbatchClassifier(**FAST)).fit(frame, classes)
        assert model.score(frame, classes) > 0.97

    def test_in_a_search_with_two_threads(self, X, classes):
        grid = {"hidden": [(), (16,)], "lr": np.array([0.01, 0.05])}
        estimator = HogbatchClassifier(epochs=np.int64(10), random_state=0)
        found = [GridSearchCV(estimator, grid, cv=2, n_jobs=jobs) for jobs in (1, 2)]
        with joblib.parallel_config(backend="threading"):
            scores = [each.fit(X, classes).cv_results_["mean_test_score"] for each in found]
        assert found[0].best_score_ > 0.7
        np.testing.assert_array_equal(*scores)  # two fits at once do not disturb each other


class TestSurroundings:
    def test_a_fit_changes_nothing_of_the_process(self, X, classes, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
        handlers = [signal.getsignal(each) for each in numbers]
        threads, cores = set(threading.enumerate()), os.sched_getaffinity(0)
        descriptors = open_descriptors()
        HogbatchClassifier(**FAST | {"epochs": 1}).fit(X, classes)
        assert capsys.readouterr().out == ""
        HogbatchClassifier(**FAST | {"epochs": 1}, verbose=True).fit(X, classes)
        printed = capsys.readouterr().out
        assert "arrays: 300 training rows" in printed and "finished: training loss" in printed
        assert str(tmp_path) not in printed and not any(tmp_path.iterdir())
        assert [signal.getsignal(each) for each in numbers] == handlers
        assert os.sched_getaffinity(0) == cores
        assert set(threading.enumerate()) <= threads
        assert open_descriptors() <= descriptors
        assert list(tmp_path.iterdir()) == []

    def test_without_scikit_learn_the_import_says_what_to_install(self):
        program = (
            "import sys; sys.modules['sklearn'] = None; from hogbatch import HogbatchRegressor"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert (
            "HogbatchRegressor needs scikit-learn: pip install 'hogbatch[sklearn]'" in done.stderr
        )
        assert "HogbatchRegressor" in dir(hogbatch)


def test_features_that_no_training_row_has_do_not_matter(X, classes):
    rows = np.hstack([np.where(X > 0, X, 0), np.zeros((ROWS, 1))])
    later = rows.copy()
    later[:, -1] = 100
    for form in (np.array, scipy.sparse.csr_matrix):
        model = HogbatchClassifier(**FAST).fit(form(rows), classes)
        assert_allclose(model.predict_proba(form(later)), model.predict_proba(form(rows)))
        model = HogbatchClassifier(**FAST).partial_fit(form(rows), classes, np.unique(classes))
        before = model.predict_proba(form(later))
        model.partial_fit(form(later), classes)
        assert not np.allclose(before, model.predict_proba(form(later))), "later parts may have it"
