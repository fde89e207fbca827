"""Runs with a hashed output layer: real processes on small random data."""

import json

import numpy as np
import pytest

from hogbatch import load_model

ROWS, FEATURES, LABELS, EPOCHS = 4000, 2000, 1500, 6
TRAINING = ("--hidden", 64, "--loss", "softmax", "--optimizer", "adam", "--lr", 0.005)
BATCH = ("--cpu-batch", 32, "--epochs", EPOCHS)


def write_rows(path, rows, prototypes, random):
    """Write XMC text: a row has two labels by Zipf's law, and features of their prototypes."""
    chances = 1 / np.arange(1, LABELS + 1)
    lines = [f"{rows} {FEATURES} {LABELS}"]
    for labels in random.choice(LABELS, (rows, 2), p=chances / chances.sum()):
        own = random.choice(prototypes[labels].ravel(), 24)
        found, times = np.unique([*own, *random.integers(0, FEATURES, 6)], return_counts=True)
        values = (1 + np.log(times)) / np.linalg.norm(1 + np.log(times))
        pairs = (f"{n}:{value:.6g}" for n, value in zip(found, values, strict=True))
        lines.append(f"{','.join(map(str, sorted(set(labels))))} {' '.join(pairs)}")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Flags that name the files."""
    folder, random = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    prototypes = random.integers(0, FEATURES, (LABELS, 12))
    write_rows(folder / "train.xmc", ROWS, prototypes, random)
    write_rows(folder / "test.xmc", 500, prototypes, random)
    test = folder / "test.xmc"
    return folder / "train.xmc", "--validation", test, "--test", test


def test_it_learns_about_as_much_as_a_dense_layer_from_the_same_rows(data, main, tmp_path):
    """A deterministic run that is repeated gives the same model to the bit."""
    summaries, models = [], []
    for number, output in enumerate(("lsh", "lsh", "dense")):
        run_dir = tmp_path / f"{number}"
        flags = (*BATCH, "--deterministic", "--output", output, "--run-dir", run_dir)
        done = main("train", *data, *TRAINING, *flags)
        assert done.returncode == 0, done.stderr
        summaries.append(json.loads((run_dir / "summary.json").read_text()))
        models.append((run_dir / "model.safetensors").read_bytes())
    assert models[0] == models[1]
    lsh, _, dense = summaries
    assert lsh["rows"] == dense["rows"] == EPOCHS * ROWS
    losses = [entry["validation_loss"] for entry in lsh["history"]]
    assert losses == sorted(losses, reverse=True) and losses[-1] < 0.7 * np.log(LABELS)
    assert dense["test"]["value"] > 0.6
    assert lsh["test"]["value"] > dense["test"]["value"] - 0.08
    (worker,), (other,) = lsh["workers"], dense["workers"]
    assert 0 < worker["active"] < 0.1 * LABELS and other["active"] is None


def test_a_cpu_and_a_gpu_worker_train_one_model(job, data):
    workers = ("--workers", "cpu:1,gpu:host", "--gpu-batch", "64:128", "--start-with", 2)
    workers += ("--policy", "paper-adaptive")  # which parks nobody
    job.train(*data, *TRAINING, *BATCH, *workers, "--output", "lsh", "-q")
    assert job.finish() == 0, job.said(job.coordinator)
    assert job.check_rows(ROWS) == EPOCHS
    summary = job.summary()
    cpu, gpu = sorted(summary["workers"], key=lambda worker: worker["device"])
    assert cpu["rows"] > 0 < gpu["rows"] and cpu["rows"] + gpu["rows"] == EPOCHS * ROWS
    assert cpu["active"] > 0 and gpu["active"] is None
    assert summary["test"]["value"] > 0.3  # usually 0.6
    assert job.leftovers() == []


@pytest.mark.parametrize(("members", "rows"), [(1, "auto"), (2, "auto"), (1, "2")])
def test_label_vectors_are_weighted_by_the_validation_rows(data, main, tmp_path, members, rows):
    """`evaluate`, which computes with NumPy, finds the same results as the run."""
    flags = (*BATCH, "--members", members, "--output", "lsh", "--epochs", 2)
    flags = (*flags, "--nearest-rows", rows)
    done = main("train", *data, *TRAINING, *flags, "--run-dir", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    vectors = summary["label_vectors"]
    assert vectors["weight"] > 0 and (rows == "auto" or vectors["rows"] == 2)
    assert 0.1 <= vectors["temperature"] <= 10 and (members == 1 or vectors["temperature"] == 1)
    assert ("will contain the training rows" in done.stdout) == (vectors["rows"] > 0)
    for name in ("validation", "test"):  # here, these are the same rows
        found = vectors[name]
        assert found["metric"] == "P@1" and found["all"] == summary[name]["value"]
        assert found["all"] > max(found["network"], 0.5)
        assert min(found["label_vectors"], found["nearest_rows"]) > 0.3
    model = tmp_path / "run" / "model.safetensors"
    done = main("evaluate", model, data[-1], "--json")
    measured = json.loads(done.stdout)
    assert measured["loss"] == pytest.approx(summary["test"]["loss"], rel=1e-4)
    for name, value in summary["test"]["values"].items():
        assert measured[name] == pytest.approx(value, abs=0.005)
    exact, done = (
        main("predict", model, data[-1], "--top", 1, *more) for more in ((), ("--approximate",))
    )
    if members == 2:
        assert done.returncode == 2 and "not an ensemble" in done.stderr
        return
    labels, found = (
        [line.split(":")[0] for line in each.stdout.splitlines()] for each in (exact, done)
    )
    assert np.mean([one == other for one, other in zip(labels, found, strict=True)]) > 0.95


def test_a_second_run_has_the_weights_and_the_temperature_of_the_first_one(data, main, tmp_path):
    """Its scores are divided by the temperature, too: they are halved by twice the temperature."""
    train, *_, test = data
    common = (*BATCH, "--output", "lsh", "--epochs", 1, "--deterministic", "--refit", "-q")
    models = []

    def second_run(name, *flags):
        run_dir = ("--run-dir", tmp_path / name)
        done = main("train", train, "--test", test, *TRAINING, *common, *flags, *run_dir)
        assert done.returncode == 0, done.stderr
        models.append(load_model(tmp_path / name / "model.safetensors"))
        return json.loads((tmp_path / name / "summary.json").read_text())

    summary = second_run("refit")
    first = json.loads((tmp_path / "refit/previous-run/summary.json").read_text())["label_vectors"]
    weights = [first[name] for name in ("weight", "exponent", "rows", "temperature")]
    found = [summary["label_vectors"][name] for name in ("weight", "exponent", "rows")]
    assert found == pytest.approx(weights[:3]) and weights[3] != 1
    weights[3] *= 2
    vectors, rows = "{0}:{1}:{3:.6f}".format(*weights), f"{weights[2]}"
    given = ("--label-vectors", vectors, "--nearest-rows", rows, "--max-rows", summary["rows"])
    second_run("halved", *given)
    inputs = np.eye(20, FEATURES, dtype=np.float32)
    one, other = (model.scores(inputs) for model in models)
    np.testing.assert_allclose(one, 2 * other, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("flags", "weights"),
    [
        (("--label-vectors", "off"), None),
        (("--label-vectors", "3:0.5", "--nearest-rows", 2.5), (3.0, 2.5)),
        (("--label-vectors", "3:0.5", "--nearest-rows", "off"), (3.0, 0.0)),
    ],
)
def test_label_vectors_and_nearest_rows_can_be_left_out_or_weighted_by_the_user(
    data, main, tmp_path, flags, weights
):
    flags = (*BATCH, "--output", "lsh", "--epochs", 1, *flags, "-q")
    done = main("train", *data, *TRAINING, *flags, "--run-dir", tmp_path)
    assert done.returncode == 0, done.stderr
    vectors = json.loads((tmp_path / "summary.json").read_text())["label_vectors"]
    assert (vectors and (vectors["weight"], vectors["rows"])) == weights
