"""Raw tables from the command line: text labels, gaps, categories, dates and texts."""

import shutil

import numpy as np
import pandas as pd
import pytest

import hogbatch
from hogbatch.model.file import load_model

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
    run = hogbatch.train(
        folder / "train.csv",
        test=folder / "test.csv",
        label="outcome",
        text=("note",),
        hidden=(),
        epochs=30,
        deterministic=True,
        run_dir=folder / "run",
    )
    assert run.status == "finished"
    return folder


def test_one_line_says_how_the_columns_are_used(folder, main, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    flags = ("--label", "outcome", "--text", "note", "--hidden", "", "--epochs", 31)
    done = main("train", "train.csv", *flags, "--resume", "run", "--deterministic", cwd=copy)
    assert done.returncode == 0 and "resumed from" in done.stdout
    assert (
        "train.csv: columns: 1 numeric column (size), 1 categorical column (color), 1 date (day), "
        "1 text (note); not used: no (numbers the rows; --numeric uses it)\n"
    ) in done.stdout


def test_raw_files_and_data_frames_are_predicted_with_the_labels_of_the_training_file(folder, main):
    done = main("predict", "run/model.safetensors", "later.parquet", cwd=folder)
    assert done.returncode == 0, done.stderr
    predicted, true = done.stdout.splitlines(), frame(1).outcome
    assert set(predicted) == {"late", "in time"}
    assert np.mean(predicted == true) > 0.9
    assert main("predict", "run/model.safetensors", "test.csv", cwd=folder).stdout == done.stdout
    model, raw = load_model(folder / "run" / "model.safetensors"), frame(1).drop(columns="outcome")
    assert model.predict(raw[[*raw.columns[::-1]]]).tolist() == predicted
    assert model.predict(raw.to_dict("list")).tolist() == predicted
    results = main("evaluate", "run/model.safetensors", "test.csv", cwd=folder).stdout
    accuracy = dict(line.split() for line in results.splitlines())["accuracy"]
    assert float(accuracy) == pytest.approx(np.mean(predicted == true))


def test_losses_are_multiplied_by_the_weights_of_rows_and_classes(tmp_path):
    tables = []
    for seed, name in enumerate(("train.csv", "test.csv")):
        times = np.random.default_rng(seed).integers(0, 4, ROWS)
        tables.append(frame(seed).assign(times=times)[["times", "size", "color", "outcome"]])
        tables[-1].to_csv(tmp_path / name, index=False)
    settings = {"label": "outcome", "sample_weight": "times", "class_weight": "balanced"}
    settings |= {"hidden": (), "epochs": 2, "deterministic": True, "quiet": True}
    settings |= {"validation_fraction": 0.0}  # all rows of the file have a part in the totals
    run = hogbatch.train(tmp_path / "train.csv", test=tmp_path / "test.csv", **settings)
    train, test = tables
    likely = run.model.predict_proba(test)
    names = list(run.model.encoding.classes)
    losses = -np.log(likely[np.arange(ROWS), [names.index(each) for each in test.outcome]])
    totals = train.groupby("outcome").times.sum()
    weights = test.times / totals[test.outcome].to_numpy()
    assert run.test_loss == pytest.approx(np.average(losses, weights=weights), rel=1e-4)
    again = hogbatch.train(train, X_test=test, **settings)
    assert again.test_loss == pytest.approx(run.test_loss, rel=1e-5)


def test_the_last_rows_by_time_are_the_test_rows_of_files_and_frames(tmp_path):
    when = np.random.default_rng(7).permutation(ROWS) / 10
    rows = frame(0).assign(when=when)[["when", "size", "color", "outcome"]]
    rows.to_csv(tmp_path / "rows.csv", index=False)
    settings = {"label": "outcome", "time": "when", "hidden": (), "epochs": 1, "quiet": True}
    run = hogbatch.train(tmp_path / "rows.csv", deterministic=True, **settings)
    test = rows.sort_values("when").tail(ROWS // 5)
    places = [list(run.model.encoding.classes).index(each) for each in test.outcome]
    losses = -np.log(run.model.predict_proba(test)[np.arange(len(test)), places])
    assert run.test_loss == pytest.approx(losses.mean(), rel=1e-4)
    again = hogbatch.train(rows, deterministic=True, **settings)
    assert again.test_loss == pytest.approx(run.test_loss, rel=1e-5)
