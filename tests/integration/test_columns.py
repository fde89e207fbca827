"""Models on CSV files with columns in another order, too few, too many or without names."""

import numpy as np
import pytest
from sklearn.datasets import load_wine

import hogbatch
from hogbatch.model.file import load_model
from tests.support.fault_injection import cli

WINE = load_wine()
NAMES = [*WINE.feature_names, "target"]
CELLS = np.column_stack([WINE.data, WINE.target])[np.random.default_rng(0).permutation(178)]
TRAINED = 120  # rows; the others are for test
FLAGS = (
    "--scale",
    "standard",
    "--hidden",
    16,
    "--epochs",
    50,
    "--deterministic",
    "--loss",
    "softmax",
)


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
    """Data files by name, and the model of "train" as "model"."""
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
    run = ("train", found["train"], "--test", found["other order"], *FLAGS)
    done = cli(*run, "--run-dir", folder / "run")
    assert done.returncode == 0, done.stderr
    return {**found, "model": folder / "run" / "model.safetensors", "said": done.stdout}


@pytest.fixture(scope="module")
def expected(files):
    """What `evaluate` prints of the test file."""
    done = cli("evaluate", files["model"], files["test"])
    assert (done.returncode, done.stderr) == (0, "")
    assert float(done.stdout.split()[-1]) > 0.8
    return done.stdout


@pytest.mark.parametrize("name", ["other order", "more", "bare"])
def test_a_file_with_other_columns_gives_the_same_results(files, expected, name):
    done = cli("evaluate", files["model"], files[name])
    assert (done.returncode, done.stdout) == (0, expected)
    lines = done.stderr.splitlines()
    assert len(lines) == (name != "other order")
    if name == "more":
        assert "more.csv: 2 columns are ignored because the training data lack" in lines[0]
    if name == "bare":
        assert "bare.csv: there is no header, so columns are matched" in lines[0]


def test_training_tests_on_columns_in_another_order(files, expected):
    accuracy = expected.split()[-1]
    assert f"accuracy {float(accuracy):.4f}" in files["said"].splitlines()[-1]


def test_predictions_need_no_label(files):
    lines = cli("predict", files["model"], files["test"]).stdout
    assert len(lines.splitlines()) == len(CELLS) - TRAINED
    for name in ("other order", "no label"):
        done = cli("predict", files["model"], files[name])
        assert (done.returncode, done.stdout, done.stderr) == (0, lines, "")
    done = cli("evaluate", files["model"], files["no label"])
    assert done.returncode == 2
    assert "has no labels: expected the label column 'target'" in done.stderr


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_a_file_that_lacks_a_feature_is_refused_though_it_has_a_label(files, command):
    done = cli(command, files["model"], files["one less"])
    assert (done.returncode, done.stdout) == (2, "")
    assert "less.csv:1: expected the 13 features of the training data" in done.stderr
    assert "got no column 'ash'" in done.stderr and len(done.stderr.splitlines()) == 1


def test_the_model_knows_its_columns(files):
    model = load_model(files["model"])
    assert model.feature_names == tuple(NAMES[:-1])
    assert (model.about["label"], model.about["label_column"]) == ("target", "13")


def test_a_header_of_column_numbers_is_no_row(tmp_path):
    path = tmp_path / "numbers.csv"
    numbers = ",".join(map(str, range(len(NAMES))))
    path.write_text(numbers + "\n" + write(path, CELLS, NAMES, header=False).read_text())
    done = cli("train", path, *FLAGS, "--run-dir", tmp_path / "run")
    assert "the first line is treated as a header of column numbers (0 to 13)" in done.stdout
    assert load_model(tmp_path / "run" / "model.safetensors").encoding.classes == (0, 1, 2)
    settings = {"epochs": 1, "workers": "cpu:1", "quiet": True, "run_dir": tmp_path / "row"}
    run = hogbatch.train(path, header="no", **settings)
    assert run.model.encoding.classes == (0, 1, 2, 13)


def test_a_run_on_a_file_with_names_is_resumed(files, tmp_path):
    flags = ("--workers", "cpu:1", "--hidden", 8, "--run-dir", tmp_path / "run")
    done = cli("train", files["train"], "--epochs", 2, *flags)
    assert done.returncode == 0, done.stderr
    done = cli("train", "--resume", tmp_path / "run", "--epochs", 4)
    assert done.returncode == 0, done.stderr
    assert "resumed from" in done.stdout


def test_features_that_training_never_saw_are_counted(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1 3:2\n-1 2:1\n" * 20)
    (tmp_path / "t.svm").write_text("1 1:1 3:2\n-1 2:1 4:1 7:1\n1 4:1\n")
    flags = ("--test", "t.svm", "--epochs", 1, "--workers", "cpu:1", "--hidden", "")
    note = "t.svm: 3 values of 2 features that the training data lack are ignored"
    done = cli("train", "a.svm", *flags, "--run-dir", "run", cwd=tmp_path)
    assert note in done.stdout
    done = cli("predict", "run/model.safetensors", "t.svm", cwd=tmp_path)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 3)
    assert done.stderr.startswith(f"hogbatch: note: {note}")
    done = cli("train", "a.svm", "--features", 9, *flags, "--run-dir", "wide", cwd=tmp_path)
    assert "ignored" not in done.stdout and "network 9-1" in done.stdout
