"""Models on CSV files with columns in another order, too few, too many or without names."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import dump_svmlight_file, load_wine

import hogbatch
from hogbatch.errors import UsageError

WINE = load_wine()
NAMES = [*WINE.feature_names, "target"]
CELLS = np.column_stack([WINE.data, WINE.target])[np.random.default_rng(0).permutation(178)]
TRAINED = 120  # rows; the others are for test
SETTINGS = {"scale": "standard", "hidden": (16,), "loss": "softmax", "deterministic": True}


# Predicting from arrays needs NumPy and safetensors alone.
PREDICT = """
import sys, hogbatch
hogbatch.load_model(sys.argv[1]).predict([[1.0] * 13])
assert "pyarrow" not in sys.modules
"""


def write(path, rows, names, header=True):
    """A file with the columns `names`; those that are not of the data hold text."""
    columns = [NAMES.index(name) if name in NAMES else None for name in names]
    lines = [",".join(names)] if header else []
    for number, row in enumerate(rows):
        cells = (f"no. {number}" if n is None else f"{row[n]:g}" for n in columns)
        lines.append(",".join(cells))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Data files by name, the run on "train", tested on "other order", and its model."""
    folder, test = tmp_path_factory.mktemp("wine"), CELLS[TRAINED:]
    other = [NAMES[n] for n in np.random.default_rng(1).permutation(len(NAMES))]
    found = {
        "train": write(folder / "train.csv", CELLS[:TRAINED], NAMES),
        "test": write(folder / "test.csv", test, NAMES),
        "other order": write(folder / "other.csv", test, other),
        "more": write(folder / "more.csv", test, ["id", *other, "note"]),
        "no label": write(folder / "unlabelled.csv", test, [n for n in other if n != "target"]),
        "one less": write(folder / "less.csv", test, [n for n in NAMES if n != "ash"]),
        "bare": write(folder / "bare.csv", test, NAMES, header=False),
    }
    where = {"test": found["other order"], "run_dir": folder / "run", "quiet": True}
    run = hogbatch.train(found["train"], epochs=50, **where, **SETTINGS)
    return {**found, "run": run, "model": folder / "run" / "model.safetensors"}


def test_columns_are_found_by_their_names(files, main):
    expected = main("evaluate", files["model"], files["test"])
    assert (expected.returncode, expected.stderr) == (0, "")
    results = dict(line.split() for line in expected.stdout.splitlines())
    accuracy = float(results["accuracy"])
    assert accuracy > 0.8
    assert files["run"].summary["test"]["value"] == pytest.approx(accuracy, abs=1e-4)
    for name, note in (
        ("other order", ""),
        ("more", ""),
        ("bare", "bare.csv: there is no header, so columns are matched"),
    ):
        done = main("evaluate", files["model"], files[name])
        assert (done.returncode, done.stdout) == (0, expected.stdout)
        assert len(done.stderr.splitlines()) == bool(note) and note in done.stderr


def test_predictions_need_all_features_and_no_label(files, main):
    lines = main("predict", files["model"], files["test"]).stdout
    assert len(lines.splitlines()) == len(CELLS) - TRAINED
    for name in ("other order", "no label"):
        done = main("predict", files["model"], files[name])
        assert (done.returncode, done.stdout, done.stderr) == (0, lines, "")
    done = main("evaluate", files["model"], files["no label"])
    assert done.returncode == 2
    assert "has no labels: expected the label column 'target'" in done.stderr
    done = main("predict", files["model"], files["one less"])
    assert (done.returncode, done.stdout) == (2, "")
    assert "less.csv: expected the 13 features of the training data" in done.stderr
    assert "got no column 'ash'" in done.stderr and len(done.stderr.splitlines()) == 1


def test_frames_matrices_and_other_files_are_predicted_like_the_table(files, main, tmp_path):
    frame = pd.read_csv(files["test"])
    X, y = frame.drop(columns="target").to_numpy(), frame["target"]
    np.savez(tmp_path / "a.npz", X=X, y=y)
    dump_svmlight_file(X, y, str(tmp_path / "a.svm"), zero_based=False)
    expected = main("predict", files["model"], files["test"]).stdout
    for path in (tmp_path / "a.npz", tmp_path / "a.svm"):
        assert main("predict", files["model"], path).stdout == expected
    model = hogbatch.load_model(files["model"])
    for rows in (frame, X, X.tolist(), csr_array(X)):
        assert [f"{label:g}" for label in model.predict(rows)] == expected.split()
    done = subprocess.run([sys.executable, "-c", PREDICT, files["model"]], capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    with pytest.raises(UsageError, match="expected 13 features, as in the training data; got 12"):
        model.predict(X[:, 1:])
