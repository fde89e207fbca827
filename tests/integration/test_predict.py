"""`hogbatch evaluate` and `predict` on a saved model: training's numbers, with NumPy alone."""

import json
import subprocess
import sys

import numpy as np
import pytest

import hogbatch
from hogbatch.model.file import load_model
from tests.support.fault_injection import WITHIN_S, cli

TEST_ROWS = 16_281  # of a9a


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """The folder of a finished run on a9a."""
    folder = tmp_path_factory.mktemp("model") / "run"
    hogbatch.train("a9a", epochs=2, hidden=(32,), quiet=True, run_dir=folder)
    return folder


def test_evaluate_agrees_with_the_summary(run_dir, main):
    found = read_results(main("evaluate", run_dir / "model.safetensors", "a9a"))
    test = json.loads((run_dir / "summary.json").read_text())["test"]
    assert found["rows"] == TEST_ROWS
    assert found["loss"] == pytest.approx(test["loss"], abs=1e-4)
    assert found["accuracy"] == pytest.approx(test["value"], abs=1e-4)


def read_results(done):
    assert (done.returncode, done.stderr) == (0, "")
    return {
        name: float(value) for name, value in (line.split() for line in done.stdout.splitlines())
    }


def test_whoever_stops_reading_gets_no_traceback(run_dir):
    command = [sys.executable, "-m", "hogbatch.cli.main", "predict", run_dir / "model.safetensors"]
    with subprocess.Popen(
        [*command, "a9a"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(WITHIN_S) == 0
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["evaluate", "gone.safetensors", "a9a"], "gone.safetensors: cannot read the model"),
        (["evaluate", "MODEL"], "the following arguments are required: DATA"),
        (["evaluate", "MODEL", "label.svm"], "label.svm:1: label 7"),
        (["predict", "MODEL", "a9a", "--top", "2"], "--top needs a model with several classes"),
        (["predict", "MODEL", "a9a", "--approximate"], "--approximate needs --top K"),
        (["predict", "MODEL", "label.svm", "--output", "label.svm"], "label.svm is also an input"),
    ],
)
def test_what_does_not_suit_a_model_is_refused(arguments, sentence, run_dir, main, tmp_path):
    (tmp_path / "label.svm").write_text("7 1:1\n")
    model = str(run_dir / "model.safetensors")
    done = main(*(model if each == "MODEL" else each for each in arguments), cwd=tmp_path)
    assert done.returncode == 2 and sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.fixture(scope="module")
def tagged(tmp_path_factory):
    """Data and model of a run with hashed outputs: 40 of the 90 labels are one feature each."""
    folder = tmp_path_factory.mktemp("tagged")
    random = np.random.default_rng(0)
    lines = ["600 40 90"]
    for _ in range(600):
        features = np.sort(random.permutation(40)[:2])
        lines.append(",".join(map(str, features)) + "".join(f" {n}:1" for n in features))
    data = folder / "data.xmc"
    data.write_text("\n".join(lines) + "\n")
    flags = ("--output", "lsh", "--lsh", "simhash:K=3,L=30", "--hidden", 32, "--epochs", 8)
    done = cli(
        "train", data, "--test", data, *flags, "--deterministic", "--run-dir", folder / "run"
    )
    assert done.returncode == 0, done.stderr
    return data, folder / "run" / "model.safetensors"


def test_label_lists_are_measured_as_in_training_and_by_propensity(tagged, main):
    data, path = tagged
    found = read_results(main("evaluate", path, data))
    test = json.loads(path.with_name("summary.json").read_text())["test"]
    assert found["loss"] == pytest.approx(test["loss"], rel=1e-4)
    assert {name: found[name] for name in test["values"]} == pytest.approx(test["values"], abs=1e-4)
    assert found["P@1"] > 0.5 and 0 < found["PSP@1"] <= 1
    model = load_model(path)
    assert model.frequencies.rows == 480 and model.frequencies.of_label.sum() == 960
    assert not model.frequencies.of_label[40:].any()
    assert model.about["lsh"] == "simhash:K=3,L=30"


def test_the_top_of_label_lists_is_xmc_text(tagged, main, tmp_path):
    output, (data, model) = tmp_path / "scores.txt", tagged
    done = main("predict", model, data, "--top", 3, "--output", output)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    header, *lines = output.read_text().splitlines()
    assert header == "600 90" and len(lines) == 600
    for line in lines:
        cells = [cell.split(":") for cell in line.split()]
        labels = [int(label) for label, _ in cells]
        assert labels == sorted(set(labels)) and len(labels) == 3
        assert 0 <= sum(float(value) for _, value in cells) <= 1.00001


def test_results_for_other_programs(run_dir, main, tmp_path):
    model, output = run_dir / "model.safetensors", tmp_path / "predicted.csv"
    done = main("evaluate", model, "a9a", "--json")
    assert json.loads(done.stdout)["rows"] == TEST_ROWS and done.stderr == ""
    assert main("predict", model, "a9a", "--output", output).stdout == ""
    header, *rows = output.read_text().splitlines()
    assert header == "prediction,probability_-1,probability_1" and len(rows) == TEST_ROWS
