"""`hogbatch evaluate` and `predict` on a saved model: training's numbers, with NumPy alone."""

import json
import subprocess
import sys

import numpy as np
import pytest

from hogbatch.model.file import load_model
from tests.support.fault_injection import WITHIN_S, cli

TEST_ROWS = 16_281  # of a9a


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """The folder of a finished run on a9a."""
    folder = tmp_path_factory.mktemp("model") / "run"
    flags = ("--epochs", 2, "--hidden", 32, "--workers", "cpu:1", "-q")
    done = cli("train", "a9a", *flags, "--run-dir", folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_evaluate_agrees_with_the_summary(run_dir):
    done = cli("evaluate", run_dir / "model.safetensors", "a9a")
    assert done.returncode == 0 and done.stderr == ""
    found = dict(line.split() for line in done.stdout.splitlines())
    test = json.loads((run_dir / "summary.json").read_text())["test"]
    assert found["rows"] == str(TEST_ROWS)
    assert float(found["loss"]) == pytest.approx(test["loss"], abs=1e-4)
    assert float(found["accuracy"]) == pytest.approx(test["value"], abs=1e-4)


def test_predict_gives_a_label_for_every_row(run_dir, tmp_path):
    output = tmp_path / "labels.txt"
    done = cli("predict", run_dir / "model.safetensors", "a9a", "--output", output)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    labels = np.loadtxt(output)
    assert len(labels) == TEST_ROWS and set(labels) == {-1, 1}


def test_probabilities_go_with_the_labels(run_dir):
    model = run_dir / "model.safetensors"
    labels = np.loadtxt(cli("predict", model, "a9a").stdout.splitlines())
    fractions = np.loadtxt(cli("predict", model, "a9a", "--proba").stdout.splitlines())
    assert fractions.shape == (TEST_ROWS, 2)
    np.testing.assert_allclose(fractions.sum(axis=1), 1, atol=1e-5)
    clear = np.abs(fractions[:, 1] - 0.5) > 1e-5  # six digits do not tell which side the others are
    np.testing.assert_array_equal(labels[clear] > 0, fractions[clear, 1] > 0.5)


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_a_model_is_used_without_the_packages_of_training(command, run_dir):
    code = f"""
import sys
from hogbatch.cli.main import main
assert main([{command!r}, {str(run_dir / "model.safetensors")!r}, "a9a"]) == 0
print(*sorted({{"numba", "zmq", "cupy", "scipy", "msgspec"}} & sys.modules.keys()), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=WITHIN_S
    )
    assert (done.returncode, done.stderr.strip()) == (0, "")


def test_whoever_stops_reading_gets_no_traceback(run_dir):
    command = [sys.executable, "-m", "hogbatch.cli.main", "predict", run_dir / "model.safetensors"]
    with subprocess.Popen(
        [*command, "a9a"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(WITHIN_S) == 0
        assert process.stderr.read() == ""


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_a_truncated_model_is_refused(command, run_dir, tmp_path):
    whole = (run_dir / "model.safetensors").read_bytes()
    for size in (0, 7, len(whole) // 2, len(whole) - 1):
        model = tmp_path / "model.safetensors"
        model.write_bytes(whole[:size])
        done = cli(command, model, "a9a")
        assert done.returncode == 2
        assert done.stderr.startswith(f"hogbatch: {model}: truncated, or not a model file")
        assert len(done.stderr.splitlines()) == 1


def test_evaluate_skips_bad_lines_if_asked(run_dir, tmp_path):
    (tmp_path / "some.svm").write_text("+1 1:1\n" * 9 + "+1 x\n")
    model = run_dir / "model.safetensors"
    done = cli("evaluate", model, tmp_path / "some.svm", "--bad-lines", "0.1")
    assert done.stdout.startswith("rows 9\n")
    assert "some.svm:10:4: expected" in done.stderr
    refused = cli("evaluate", model, tmp_path / "some.svm", "--bad-lines", "0.05")
    assert refused.returncode == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["evaluate", "gone.safetensors", "a9a"], "gone.safetensors: cannot read the model"),
        (["evaluate", "MODEL", "gone.svm"], "no such file: gone.svm"),
        (["evaluate", "MODEL"], "the following arguments are required: DATA"),
        (["predict", "MODEL", "narrow.csv"], "narrow.csv:1: fewer features"),
        (["predict", "MODEL", "a9a", "--header", "1"], "header must be one of auto, yes, no"),
        (["evaluate", "MODEL", "zero.svm"], "zero.svm:1:4: feature index 0"),
        (["evaluate", "MODEL", "label.svm"], "label.svm:1: label 7"),
        (["predict", "MODEL", "a9a", "--top", "2"], "--top needs a model with several classes"),
        (["predict", "MODEL", "a9a", "--top", "many"], "--top"),
        (["evaluate", "MODEL", "a9a", "--approximate"], "needs a model trained with --output lsh"),
        (["evaluate", "MODEL", "a9a", "--lsh", "dwta"], "--lsh requires --approximate"),
        (["predict", "MODEL", "a9a", "--approximate"], "requires --top K"),
    ],
)
def test_what_does_not_suit_a_model_is_refused(arguments, sentence, run_dir, tmp_path):
    for name, line in (("narrow.csv", "1,2"), ("zero.svm", "+1 0:1"), ("label.svm", "7 1:1")):
        (tmp_path / name).write_text(line + "\n")
    model = str(run_dir / "model.safetensors")
    done = cli(*(model if each == "MODEL" else each for each in arguments), cwd=tmp_path)
    assert done.returncode == 2 and sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1 and "Traceback" not in done.stderr


def test_the_saved_model_says_where_it_is_from(run_dir):
    model = load_model(run_dir / "model.safetensors")
    assert model.about["data"] == "a9a" and model.index_base == 1


@pytest.fixture(scope="module")
def tagged(tmp_path_factory):
    """The folder of a run with a hashed output layer: 40 of the 90 labels are one feature each."""
    folder = tmp_path_factory.mktemp("tagged")
    random = np.random.default_rng(0)
    lines = ["600 40 90"]
    for _ in range(600):
        features = np.sort(random.permutation(40)[:2])
        lines.append(",".join(map(str, features)) + "".join(f" {n}:1" for n in features))
    (folder / "data.xmc").write_text("\n".join(lines) + "\n")
    flags = ("--output", "lsh", "--lsh", "simhash:K=3,L=30", "--hidden", 32, "--epochs", 8)
    whole = ("--test", folder / "data.xmc", "--deterministic", "-q", "--run-dir", folder / "run")
    done = cli("train", folder / "data.xmc", *flags, *whole)
    assert done.returncode == 0, done.stderr
    return folder


def read_results(done):
    assert (done.returncode, done.stderr) == (0, "")
    return {
        name: float(value) for name, value in (line.split() for line in done.stdout.splitlines())
    }


def test_label_lists_are_measured_as_in_training_and_by_propensity(tagged):
    found = read_results(cli("evaluate", tagged / "run" / "model.safetensors", tagged / "data.xmc"))
    test = json.loads((tagged / "run" / "summary.json").read_text())["test"]
    assert found["loss"] == pytest.approx(test["loss"], rel=1e-4)
    assert {name: found[name] for name in test["values"]} == pytest.approx(test["values"], abs=1e-4)
    assert found["P@1"] > 0.5 and 0 < found["PSP@1"] <= 1
    model = load_model(tagged / "run" / "model.safetensors")
    assert model.frequencies.rows == 600 and model.frequencies.of_label.sum() == 1200
    assert not model.frequencies.of_label[40:].any()


def test_tables_of_training_approximate_the_ranking(tagged):
    model, data = tagged / "run" / "model.safetensors", tagged / "data.xmc"
    assert load_model(model).about["lsh"] == "simhash:K=3,L=30"
    exact = read_results(cli("evaluate", model, data))
    found = read_results(cli("evaluate", model, data, "--approximate"))
    assert found["loss"] == exact["loss"]
    assert 0.5 < found["recall@1"] <= 1 and 0 < found["scored"] <= 1
    less = read_results(cli("evaluate", model, data, "--approximate", "--lsh", "simhash:K=3,L=2"))
    assert less["scored"] < found["scored"] and less["recall@5"] < found["recall@5"]


@pytest.mark.parametrize("flags", [(), ("--approximate",)])
def test_the_top_of_label_lists_is_xmc_text(tagged, tmp_path, flags):
    output = tmp_path / "scores.txt"
    model = tagged / "run" / "model.safetensors"
    done = cli("predict", model, tagged / "data.xmc", "--top", 3, "--output", output, *flags)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    header, *lines = output.read_text().splitlines()
    assert header == "600 90" and len(lines) == 600
    for line in lines:
        cells = [cell.split(":") for cell in line.split()]
        labels = [int(label) for label, _ in cells]
        assert labels == sorted(set(labels)) and len(labels) <= 3
        assert 0 <= sum(float(value) for _, value in cells) <= 1.00001


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ((), "ranks labels but does not decide how many apply"),
        (("--top", 91), "expected k from 1 to 90; got 91"),
        (
            ("--top", 5, "--approximate", "--lsh", "dwta:K=x"),
            "lsh: K must be a whole number; got 'x'",
        ),
    ],
)
def test_what_does_not_suit_label_lists_is_refused(tagged, flags, sentence):
    done = cli("predict", tagged / "run" / "model.safetensors", tagged / "data.xmc", *flags)
    assert done.returncode == 2 and sentence in done.stderr
    assert done.stdout == "" and len(done.stderr.splitlines()) == 1
