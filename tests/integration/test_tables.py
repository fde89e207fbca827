"""Raw tables from the command line: text labels, gaps, categories, dates and texts."""

import shutil

import numpy as np
import pandas as pd
import pytest

from hogbatch.model.file import load_model
from tests.support.fault_injection import cli

ROWS = 400


def frame(seed):
    """A table whose label follows from its columns."""
    chance = np.random.default_rng(seed)
    size, color = chance.normal(5, 2, ROWS), chance.choice(["red", "blue", "green"], ROWS)
    month = chance.integers(1, 13, ROWS)
    note = np.where(chance.random(ROWS) < 0.3, "a very late arrival", "nothing to say about it")
    score = size - 5 + 2.0 * (color == "red") + 3.0 * (note == "a very late arrival") - 1.5
    return pd.DataFrame(
        {
            "no": np.arange(ROWS),
            "size": np.where(chance.random(ROWS) < 0.1, np.nan, size),
            "color": color,
            "day": [f"2013-{m:02}-15 0{m % 9}:30:00" for m in month],
            "note": note,
            "outcome": np.where(score > 0, "late", "in time"),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with tables and a run on them."""
    folder = tmp_path_factory.mktemp("tables")
    frame(0).to_csv(folder / "train.csv", index=False, na_rep="NA")
    later = frame(1)
    later.to_csv(folder / "test.csv", index=False, na_rep="NA")
    later.drop(columns="outcome").to_parquet(folder / "later.parquet")
    done = cli(
        *("train", "train.csv", "--test", "test.csv", "--label", "outcome", "--text", "note"),
        *("--hidden", "", "--epochs", 30, "--deterministic", "--run-dir", "run"),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    (folder / "said").write_text(done.stdout)
    return folder


def test_one_line_says_how_the_columns_are_used(folder):
    assert (
        "train.csv: columns: 1 numeric column (size), 1 categorical column (color), 1 date (day), "
        "1 text (note); not used: no (numbers the rows; --numeric uses it)\n"
    ) in (folder / "said").read_text()


def test_raw_files_are_predicted_with_the_labels_of_the_training_file(folder):
    done = cli("predict", "run/model.safetensors", "later.parquet", cwd=folder)
    assert done.returncode == 0, done.stderr
    predicted, true = done.stdout.splitlines(), frame(1).outcome
    assert set(predicted) == {"late", "in time"}
    assert np.mean(predicted == true) > 0.9
    again = cli("predict", "run/model.safetensors", "test.csv", cwd=folder)
    assert again.stdout == done.stdout


def test_evaluation_agrees_with_prediction(folder):
    done = cli("evaluate", "run/model.safetensors", "test.csv", cwd=folder)
    results = dict(line.split() for line in done.stdout.splitlines())
    predicted = cli("predict", "run/model.safetensors", "test.csv", cwd=folder).stdout.split("\n")
    assert float(results["accuracy"]) == pytest.approx(np.mean(predicted[:-1] == frame(1).outcome))


def test_data_frames_are_encoded_by_name(folder):
    model = load_model(folder / "run" / "model.safetensors")
    raw = frame(1).drop(columns="outcome")
    lines = cli("predict", "run/model.safetensors", "test.csv", cwd=folder).stdout.splitlines()
    shuffled = raw[[*raw.columns[::-1]]]
    assert model.predict(shuffled).tolist() == lines
    assert model.predict(raw.to_dict("list")).tolist() == lines


def test_a_run_on_a_table_is_resumed(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    done = cli("train", "--resume", "run", "--epochs", 31, cwd=copy)
    assert done.returncode == 0, done.stderr
    assert "resumed from" in done.stdout
