"""Raw data frames in the tools of scikit-learn, encoded as by `hogbatch.train`."""

import numpy as np
import pandas
import polars
import pytest
from sklearn.feature_selection import SelectFromModel
from sklearn.inspection import permutation_importance
from sklearn.model_selection import GridSearchCV, GroupKFold, TimeSeriesSplit, cross_val_score

import hogbatch
from hogbatch import HogbatchClassifier, HogbatchRegressor

ROWS = 240
FAST = {"hidden": (16,), "epochs": 30, "lr": 0.05, "random_state": 0}
LINEAR = {"hidden": (), "epochs": 30, "random_state": 0}
RANDOM = np.random.default_rng(2)


@pytest.fixture(scope="module")
def frame():
    return pandas.DataFrame(
        {
            "age": np.where(RANDOM.random(ROWS) < 0.1, np.nan, RANDOM.normal(40, 9, ROWS)),
            "port": RANDOM.choice(["Brest", "Calais", None], ROWS),
            "sailed": pandas.date_range("2020-01-01", periods=ROWS),
            "note": RANDOM.choice(["first class", "cabin below deck", "no cabin"], ROWS),
            "noise": RANDOM.normal(size=ROWS),
        }
    )


@pytest.fixture(scope="module")
def y(frame):
    return np.where((frame.port == "Brest") | frame.note.str.startswith("no"), "yes", "no")


def test_in_the_tools_of_scikit_learn(frame, y):
    model = HogbatchClassifier(text=("note",), **FAST)
    groups = np.arange(ROWS) // 24
    assert cross_val_score(model, frame, y, cv=GroupKFold(2), groups=groups).min() > 0.9
    assert cross_val_score(model, frame, y, cv=TimeSeriesSplit(2)).min() > 0.9
    grid = GridSearchCV(model, {"text": [(), ("note",)], "drop": [("port",)]}, cv=2)
    assert grid.fit(frame, y).best_score_ > 0.6
    model.fit(frame, y)
    found = permutation_importance(model, frame, y, n_repeats=2, random_state=0).importances_mean
    assert set(frame.columns[np.argsort(found)[-2:]]) == {"port", "note"}
    chosen = SelectFromModel(HogbatchClassifier(**LINEAR), max_features=2).fit(frame, y)
    assert chosen.get_feature_names_out().tolist() == ["port", "note"]


@pytest.mark.parametrize("kind", ["frame", "matrix"])
def test_the_model_is_that_of_train_with_equal_settings(frame, kind):
    X = frame if kind == "frame" else np.c_[frame.noise, frame.age.fillna(0) ** 3]
    target = frame.noise * 3 + (frame.port == "Brest")
    estimator = HogbatchRegressor(random_state=4, epochs=3).fit(X, target)
    seed = int(np.random.RandomState(4).randint(np.iinfo(np.int32).max))
    settings = {"test_fraction": 0, "seed": seed, "epochs": 3}
    run = hogbatch.train(X, target, loss="squared", verbose=False, deterministic=True, **settings)
    assert run.model.network == estimator.model_.network
    assert len(estimator.validation_scores_) == 3, "early stopping is the default"
    for name, tensor in run.model.tensors.items():
        np.testing.assert_array_equal(tensor, estimator.model_.tensors[name])


def test_later_rows_are_encoded_like_those_of_the_model(frame, y):
    model = HogbatchClassifier(**FAST).fit(frame, y)
    later = frame.head(9).assign(port="Dover", age=np.nan)
    assert model.predict(later).tolist() == model.model_.predict(later).tolist()
    assert model.predict(polars.from_pandas(frame)).tolist() == model.predict(frame).tolist()


def test_partial_fit_and_warm_starts_keep_the_first_encoding(frame, y):
    numbers, one = frame.assign(constant=1.0), {"hidden": (), "random_state": 0, "lr": 0.3}
    model = HogbatchClassifier(**one).partial_fit(numbers[:50], y[:50], ["no", "yes"])
    table = model.model_.table
    assert [each.name for each in table.columns] == [*numbers.columns]
    model.partial_fit(
        numbers.assign(port="Dover", constant=5.0), y, sample_weight=(y != "no") * 1.0
    )
    assert model.model_.table is table
    warm = HogbatchClassifier(**FAST, warm_start=True).fit(frame, y)
    table, before = warm.model_.table, warm.n_iter_
    assert warm.fit(frame[:100], y[:100]).model_.table is table
    assert warm.n_iter_ == 2 * before and warm.model_.about["label_column"] == "5"


def test_a_matrix_of_objects_has_the_columns_of_a_frame(frame, y):
    model = HogbatchClassifier(**FAST).fit(frame[["port", "noise"]].to_numpy(object), y)
    assert [each.encoder.kind for each in model.model_.table.columns] == ["category", "number"]
