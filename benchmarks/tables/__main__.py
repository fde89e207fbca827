"""Quality of default settings on tables, beside linear models, networks and boosted trees.

Each table is divided five times into a fifth of test rows, validation rows and training rows, the
same for all models. hogbatch gets raw data frames (`hogbatch.train`; `estimator`: its estimator).
The errors are those of the second column: 1 - accuracy (error), root mean squared error / standard
deviation (deviation), 1 - average precision (precision), or log loss. * marks one that is worse
than the better one of linear model and scikit-learn's network by more than a standard error.

    scripts/bench tables --data DIR --json FILE     all sets and models: many hours
    scripts/bench tables --small --json FILE        eight of the sets that may choose defaults
    ... --models hogbatch,linear --hogbatch 'scale=quantile epochs=100' --hogbatch 'hidden=()'
    scripts/bench tables --json FILE --table        prints the tables of FILE, measures nothing

Results are added to FILE, and what it has is not measured again. --hogbatch adds a column for a
run with these settings of `hogbatch.train`. --name NAME calls hogbatch NAME in the results, to
compare two versions of it in one FILE. Models that are not installed are skipped (install them with
scripts/environment bench,peers). Choose defaults only by the first half of the sets, see cases.py.
"""

import ast
import json
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from sklearn.metrics import average_precision_score
from sklearn.model_selection import train_test_split

from benchmarks.common import arguments, report
from benchmarks.tables.cases import CASES, SMALL, Case, Table, load
from benchmarks.tables.models import FEW_ROWS, PEERS, NotApplicable, Predict, Split, hogbatch
from benchmarks.tables.summary import Result, cell, of, tables

MISSING: Final = (NotApplicable, ModuleNotFoundError, FileNotFoundError)


def main(flags: Sequence[str] | None = None) -> None:
    """Measure what the file lacks; print a line for each set and model, and the tables."""
    parser = arguments.parser("tables", __doc__)
    add, known = parser.add_argument, [report.OURS, *PEERS]
    add("--data", type=Path, default=Path(), metavar="DIR", help="directory of a9a, covtype, ...")
    add("--sets", type=arguments.names(CASES), default=list(CASES), help=", ".join(CASES))
    add("--small", dest="sets", action="store_const", const=SMALL, help=", ".join(SMALL))
    add("--models", type=arguments.names(known), default=known, help=", ".join(known))
    add("--hogbatch", action="append", default=[], metavar="SETTINGS", help="another column")
    add("--name", default=report.OURS, help="of hogbatch in the results")
    add("--splits", type=arguments.positive(int), default=5)
    add("--table", action="store_true", help="measure nothing")
    arguments.add_json(parser)
    options = parser.parse_args(flags)
    warnings.simplefilter("ignore")  # of peers: that they have not converged, and the like
    models: dict[str, Callable[[Split], Predict]] = {
        options.name if name == report.OURS else name: PEERS.get(name, hogbatch)
        for name in options.models
    }
    for text in options.hogbatch:
        models[f"{options.name} {text}"] = partial(hogbatch, **read_settings(text))
    given = options.json.read_text() if options.json and options.json.exists() else ""
    results: list[Result] = json.loads(given)["results"] if given else []
    for name in () if options.table else options.sets:
        for model, fit in models.items():
            try:
                for seed in set(range(options.splits)) - of(results, name, model).keys():
                    table = load(CASES[name], options.data)
                    measured = measure(fit, CASES[name], table, seed)
                    results.append({"set": name, "model": model, "seed": seed, **measured})
                    report.write(options.json, results)
            except MISSING as error:
                print(f"skipping {name}, {model}: {error}", flush=True)
            print(f"{name}, {model}: {cell(results, name, model)}", flush=True)
    print(tables(results))


def read_settings(text: str) -> dict[str, Any]:
    """Settings such as `epochs=100 hidden=(64,) scale=quantile`; values are Python's, or text."""

    def value(text: str) -> Any:
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return text

    parts = [part.partition("=") for part in text.split()]
    return {name: value(after) for name, _, after in parts}


def measure(fit: Callable[[Split], Predict], case: Case, table: Table, seed: int) -> Result:
    """Train and test once."""
    held_out = partial(train_test_split, random_state=seed)
    labels = table.y if case.classes else np.zeros(len(table.y))
    rest, test = held_out(np.arange(len(labels)), test_size=0.2, stratify=labels)
    fraction = 0.2 if len(rest) < FEW_ROWS else 0.1  # as in `hogbatch.train`
    train, valid = held_out(rest, test_size=fraction, stratify=labels[rest])
    split = Split(case, table.take(train), table.take(valid), seed)
    began = time.perf_counter()
    predict = fit(split)
    seconds = round(time.perf_counter() - began, 3)
    X, y = table.take(test)
    return {"seconds": seconds, **errors(np.unique(table.y), y, np.asarray(predict(X), float))}


def errors(classes: Any, y: Any, predicted: Any) -> dict[str, float]:
    """The errors of probabilities [N, C] of these classes, or of numbers [N]."""
    if predicted.ndim == 1 or predicted.shape[1] == 1:
        return {"deviation": float(np.sqrt(np.mean((predicted.ravel() - y) ** 2)) / y.std())}
    true = np.searchsorted(classes, y)
    likelihood = predicted[np.arange(len(y)), true].clip(1e-15)
    found = {
        "error": float((predicted.argmax(axis=1) != true).mean()),
        "log_loss": float(-np.log(likelihood).mean()),
    }
    if len(classes) == 2:
        found["precision"] = 1 - float(average_precision_score(true, predicted[:, 1]))
    return found


if __name__ == "__main__":
    main()
