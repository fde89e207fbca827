"""scikit-learn's linear models on encoded columns."""

from typing import Any

import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from benchmarks.tables.cases import TableCase

ITERATIONS = 1000  # maximum


def peer(case: TableCase, frame: pd.DataFrame) -> Any:
    """A pipeline for the features in `frame`.

    Numbers: gaps filled with the mean, an indicator of gaps, standardised. Other columns: one
    column for each value. Text: TF-IDF of words and word pairs.
    """
    numbers = list(frame.select_dtypes("number"))
    names = [name for name in frame if name not in numbers and name != case.text]
    numeric = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    encoders: list[tuple[str, Any, Any]] = [
        ("numbers", numeric, numbers),
        ("names", OneHotEncoder(handle_unknown="ignore"), names),
    ]
    if case.text:
        encoders.append(("text", TfidfVectorizer(ngram_range=(1, 2)), case.text))
    model = LogisticRegression(max_iter=ITERATIONS) if case.classes else Ridge()
    return make_pipeline(ColumnTransformer(encoders), model)


def with_numbers(case: TableCase, frame: pd.DataFrame) -> pd.DataFrame:
    """`frame` with its dates as seconds since 1970."""
    start, second = pd.Timestamp(0, tz="UTC"), pd.Timedelta(seconds=1)
    dates = {name: pd.to_datetime(frame[name], utc=True) for name in case.dates}
    return frame.assign(**{name: (column - start) / second for name, column in dates.items()})
