"""Quality and speed of models of raw tables, compared with scikit-learn's linear models.

Scores: each table is divided ten times (large ones fewer times) into four fifths of training rows
and the rest. hogbatch gets them as raw CSV files: `hogbatch train TRAIN --label NAME`, then
`hogbatch predict` on the rest without its labels. scikit-learn gets the same rows as a data frame,
columns encoded by a ColumnTransformer, and fits a logistic or ridge regression. The score is the
accuracy, or R² for numbers. A table passes if hogbatch's mean is not lower than scikit-learn's by
more than one standard error of the difference.

    scripts/bench tables [--data DIR] [--sets penguins,titanic] [--json FILE]
"""

import csv
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit

from benchmarks.common import arguments, report
from benchmarks.common.hogbatch_run import PROGRAM
from benchmarks.tables.cases import TableCase, cases
from benchmarks.tables.peer import peer, with_numbers


def main(flags: Sequence[str] | None = None) -> None:
    """Measure the chosen tables; print a line for each."""
    parser = arguments.parser("tables", __doc__)
    add, known = parser.add_argument, list(cases(Path()))
    add("--data", type=Path, metavar="DIR", help="directory with glosses-train.csv.gz")
    add("--sets", type=arguments.names(known), default=known, help=", ".join(known))
    arguments.add_json(parser)
    options = parser.parse_args(flags)
    results = []
    tables = cases(options.data)
    for name in options.sets:
        if name not in tables:
            print(f"skipping {name}: no --data")
            continue
        try:
            frame = tables[name].load()
        except ModuleNotFoundError as error:
            print(f"skipping {name}: {error.name} is not installed")
            continue
        results.append({"set": name, **compare(tables[name], frame)})
        print(line(results[-1]), flush=True)
        report.write(options.json, results)


def compare(case: TableCase, frame: pd.DataFrame) -> dict[str, Any]:
    """The scores of both on all splits of `frame`."""
    kind = StratifiedShuffleSplit if case.classes else ShuffleSplit
    labels = frame[case.label]
    ours, theirs = [], []
    splitter = kind(case.splits, test_size=0.2, random_state=0)
    for seed, (train, test) in enumerate(splitter.split(frame, labels)):
        ours.append(_score(case, labels.iloc[test], _predictions(case, frame, train, test, seed)))
        encoded = with_numbers(case, frame).drop(columns=case.label)
        model = peer(case, encoded).fit(encoded.iloc[train], labels.iloc[train])
        theirs.append(_score(case, labels.iloc[test], model.predict(encoded.iloc[test])))
    differences = np.array(ours) - np.array(theirs)
    return {
        "rows": len(frame),
        "ours": ours,
        "theirs": theirs,
        "difference": float(differences.mean()),
        "standard_error": float(differences.std(ddof=1) / len(differences) ** 0.5),
    }


def line(result: dict[str, Any]) -> str:
    """One line for a table."""
    ours, theirs = np.mean(result["ours"]), np.mean(result["theirs"])
    passed = result["difference"] >= -result["standard_error"]
    return (
        f"{result['set']:15} {ours:.4f}, scikit-learn {theirs:.4f}, difference "
        f"{result['difference']:+.4f}, standard error {result['standard_error']:.4f}: "
        f"{'not lower' if passed else 'LOWER'}"
    )


def _score(case: TableCase, labels: "pd.Series[Any]", predicted: Any) -> float:
    return float((accuracy_score if case.classes else r2_score)(labels, predicted))


def _predictions(case: TableCase, frame: pd.DataFrame, train: Any, test: Any, seed: int) -> Any:
    """The predictions of the command line for the rows `test`."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        frame.iloc[train].to_csv(here / "train.csv", index=False)
        frame.iloc[test].drop(columns=case.label).to_csv(here / "test.csv", index=False)
        run = ["--run-dir", str(here / "run"), "--seed", str(seed), "--quiet"]
        _call("train", str(here / "train.csv"), *case.flags, *run)
        model = str(here / "run" / "model.safetensors")
        _call("predict", model, str(here / "test.csv"), "--output", str(here / "predicted"))
        with (here / "predicted").open(newline="") as file:
            found = [row[0] for row in csv.reader(file)]
    return np.array(found) if case.classes else np.array(found, np.float64)


def _call(*arguments: str) -> None:
    subprocess.run([*PROGRAM, *arguments], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
