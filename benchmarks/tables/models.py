"""The models: functions from training and validation rows to a function that predicts.

It returns probabilities [N, C] of the classes in ascending order, or numbers [N]. A model without
a use for validation rows trains on them, too. Frameworks are imported when they are used.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype
from scipy import sparse
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from benchmarks.tables.cases import Case, Table

FEW_ROWS: Final = 10_000
DENSE_FEATURES: Final = 1_000  # most features of sparse rows for RealMLP, which takes dense ones
PENALTIES: Final = (0.01, 0.1, 1.0, 10.0, 100.0)  # of linear models
TREES: Final = dict(n_estimators=1000, subsample_freq=1, min_child_weight=1e-7)
FOR_CLASSES: Final = dict(learning_rate=0.04, subsample=0.75, num_leaves=50, min_child_samples=40)
FOR_NUMBERS: Final = dict(learning_rate=0.05, subsample=0.7, num_leaves=100, min_child_samples=3)


class NotApplicable(Exception):
    """The model does not take rows of this kind."""


class Split(NamedTuple):
    """The rows of one fit; its seed is that of the split, too."""

    case: Case
    train: Table
    valid: Table
    seed: int

    @property
    def both(self) -> Table:
        """Training and validation rows."""
        stack = partial(pd.concat, ignore_index=True) if self.train.framed else sparse.vstack
        labels = np.concatenate([self.train.y, self.valid.y])
        return Table(stack([self.train.X, self.valid.X]), labels)

    @property
    def by_loss(self) -> bool:
        """Whether probabilities are measured, not the most likely classes."""
        return self.case.measure in ("precision", "log_loss")


Predict = Callable[[Any], Any]


def hogbatch(split: Split, **settings: Any) -> Predict:
    """`hogbatch.train` with its defaults, except for `settings`."""
    import hogbatch

    case, (X, y), held_out = split.case, split.train, split.valid
    given: dict[str, Any] = {"text": (case.text,)} if case.text else {}
    given |= {} if case.classes else {"loss": "squared"}
    given |= {"X_validation": held_out.X, "y_validation": held_out.y, "test_fraction": 0}
    model = hogbatch.train(X, y, verbose=False, **{**given, "seed": split.seed, **settings}).model
    return model.predict_proba if case.classes else model.predict


def estimator(split: Split) -> Predict:
    """The estimator of hogbatch with its defaults."""
    import hogbatch

    kind = hogbatch.HogbatchClassifier if split.case.classes else hogbatch.HogbatchRegressor
    text = (split.case.text,) if split.case.text else ()
    return fitted(kind(text=text, random_state=split.seed), split.both)


def constant(split: Split) -> Predict:
    """The frequencies of the classes, or the mean."""
    return fitted(DummyClassifier() if split.case.classes else DummyRegressor(), split.both)


def linear(split: Split) -> Predict:
    """Logistic or ridge regression; the validation rows choose the penalty."""
    folds = PredefinedSplit(np.repeat([-1, 0], [len(split.train.y), len(split.valid.y)]))
    measure: Any
    if split.case.classes:
        model, penalty, measure = LogisticRegression(max_iter=300), "C", _log_likelihood
    else:
        model, penalty, measure = Ridge(), "alpha", "neg_mean_squared_error"
    pipeline = Pipeline([("encoding", encoding(split)), ("model", model)])
    grid = {f"model__{penalty}": PENALTIES}
    search = GridSearchCV(pipeline, grid, cv=folds, scoring=measure, error_score="raise")
    return fitted(search, split.both)


def _log_likelihood(model: Any, X: Any, y: Any) -> float:
    """Also of rows without some of the classes, for which "neg_log_loss" is NaN."""
    return -float(log_loss(y, model.predict_proba(X), labels=model.classes_))


def mlp(split: Split) -> Predict:
    """The network of scikit-learn; with many rows, it stops early by a tenth of them."""
    kind, rows = MLPClassifier if split.case.classes else MLPRegressor, split.both
    model = kind(early_stopping=len(rows.y) >= FEW_ROWS, random_state=split.seed)
    if not split.case.classes:
        model = TransformedTargetRegressor(model, transformer=StandardScaler())
    return fitted(make_pipeline(encoding(split), model), rows)


def lightgbm(split: Split) -> Predict:
    """LightGBM with its defaults: 100 trees."""
    import lightgbm

    kind = lightgbm.LGBMClassifier if split.case.classes else lightgbm.LGBMRegressor
    return fitted(make_pipeline(categories(split), kind(verbose=-1)), split.both)


def lightgbm_tuned(split: Split) -> Predict:
    """LightGBM with the defaults that arXiv:2407.04491 tuned; it stops by the validation rows."""
    import lightgbm

    (X, y), encoder = split.train, categories(split)
    settings: dict[str, Any]
    if split.case.classes:
        kind, settings = lightgbm.LGBMClassifier, FOR_CLASSES
        classes = "binary" if len(np.unique(y)) == 2 else "multi"
        settings = settings | {"metric": f"{classes}_{'logloss' if split.by_loss else 'error'}"}
    else:
        kind, settings = lightgbm.LGBMRegressor, FOR_NUMBERS
    model = kind(**TREES, **settings, random_state=split.seed, verbose=-1)
    stop = lightgbm.early_stopping(300, verbose=False)
    x, held_out = encoder.fit_transform(X), encoder.transform(split.valid.X)
    found = fitted(model, Table(x, y), eval_set=[(held_out, split.valid.y)], callbacks=[stop])
    return lambda rows: found(encoder.transform(rows))


def realmlp(split: Split) -> Predict:
    """RealMLP-TD-S (arXiv:2407.04491), in PyTorch."""
    from benchmarks.tables import realmlp

    case, (X, y) = split.case, split.train
    if case.text or (not split.train.framed and X.shape[1] > DENSE_FEATURES):
        raise NotApplicable("RealMLP takes dense rows only")
    encoder = make_pipeline(encoding(split), FunctionTransformer(_dense))
    names, labels = np.unique(split.both.y, return_inverse=True) if case.classes else (y, None)
    train = (encoder.fit_transform(X), y if labels is None else labels[: len(y)])
    held_out = (
        encoder.transform(split.valid.X),
        split.valid.y if labels is None else labels[len(y) :],
    )
    classes = len(names) if case.classes else 0
    found = realmlp.fit(train, held_out, classes, split.seed, by_loss=split.by_loss)
    return lambda rows: found(encoder.transform(rows))


PEERS: Final[dict[str, Callable[[Split], Predict]]] = {
    "constant": constant,
    "linear": linear,
    "mlp": mlp,
    "lightgbm": lightgbm,
    "lightgbm-tuned": lightgbm_tuned,
    "realmlp": realmlp,
    "estimator": estimator,
}


def encoding(split: Split) -> Any:
    """Columns of numbers for networks and linear models.

    Numbers: gaps filled with the mean, an indicator of gaps, standardised. Other columns: one
    column for each value, or for one of two. Text: TF-IDF of the words and word pairs in two rows
    or more.
    """
    X, text = split.train.X, split.case.text
    if not split.train.framed:
        return FunctionTransformer()
    numbers = [name for name in X if is_numeric_dtype(X[name])]
    names = [name for name in X if name not in numbers and name != text]
    numeric = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    one_hot = OneHotEncoder(drop="if_binary", handle_unknown="ignore")
    encoders: list[Any] = [("numbers", numeric, numbers), ("names", one_hot, names)]
    if text:
        encoders.append(("text", TfidfVectorizer(ngram_range=(1, 2), min_df=2), text))
    return ColumnTransformer(encoders)


def categories(split: Split) -> Any:
    """Categories of pandas, for LightGBM; a value that is not in the training rows is missing."""
    X = split.train.X
    if split.case.text or not split.train.framed:
        return encoding(split)
    names = [name for name in X if not is_numeric_dtype(X[name])]
    types = {name: pd.CategoricalDtype(X[name].dropna().unique()) for name in names}
    numbered = [str(number) for number in range(X.shape[1])]  # LightGBM refuses some names
    return FunctionTransformer(lambda rows: rows.astype(types).set_axis(numbered, axis=1))


def _dense(rows: Any) -> NDArray[np.float32]:
    return np.asarray(rows.toarray() if sparse.issparse(rows) else rows, np.float32)


def fitted(model: Any, rows: Table, **settings: Any) -> Predict:
    """How the model predicts after it is fitted on `rows`."""
    model.fit(rows.X, rows.y, **settings)
    predict: Predict = getattr(model, "predict_proba", model.predict)
    return predict
