"""Runs that begin with a model file, on other data."""

import numpy as np
import pandas
import pytest

import hogbatch

USUAL = {"test_fraction": 0, "validation_fraction": 0, "deterministic": True, "verbose": False}
RANDOM = np.random.default_rng(0)


@pytest.fixture(scope="module")
def frame():
    port = RANDOM.choice(["Brest", "Calais"], 200)
    size = RANDOM.normal(5, 2, 200)
    return pandas.DataFrame({"port": port, "size": size, "late": (port == "Brest") & (size > 4)})


@pytest.fixture(scope="module")
def model(frame, tmp_path_factory):
    path = tmp_path_factory.mktemp("initial") / "m.safetensors"
    run = hogbatch.train(frame[:100], label="late", hidden=(8,), epochs=40, lr=0.1, **USUAL)
    run.save(path)
    return str(path)


@pytest.mark.parametrize("kind", ["frame", "file"])
def test_parameters_and_encoding_are_those_of_the_model(frame, model, tmp_path, kind):
    later = frame[100:].assign(port="Dover")[["size", "late", "port"]]
    data = later if kind == "frame" else tmp_path / "later.csv"
    later.to_csv(tmp_path / "later.csv", index=False)
    settings = {"label": "late"} if kind == "frame" else {}
    run = hogbatch.train(data, init=model, epochs=1, lr=1e-9, l2=0, **settings, **USUAL)
    before, after = hogbatch.load_model(model), run.model
    assert after.network == before.network and after.encoding == before.encoding
    for name, tensor in before.tensors.items():
        np.testing.assert_allclose(after.tensors[name], tensor, atol=1e-6)
    np.testing.assert_allclose(after.predict_proba(frame), before.predict_proba(frame), atol=1e-5)


def test_training_continues_from_there(frame, model):
    later = frame[100:]
    loss = [
        hogbatch.train(later, label="late", epochs=1, **own, **USUAL).metrics["train_loss"]
        for own in ({"init": model}, {"hidden": (8,)})
    ]
    assert loss[0] < loss[1] / 2


@pytest.mark.parametrize(
    ("change", "settings", "message"),
    [
        ({}, {"hidden": (4,)}, r"--hidden 4: expected that of .*m.safetensors, 8; leave it out"),
        ({}, {"drop": ("port",)}, "--drop has no effect with --init"),
        ({"late": "maybe"}, {}, "label 'maybe' does not occur .* train a new model on them"),
        ({"size": "much"}, {}, "column 'size': expected a number; got 'much'"),
    ],
)
def test_other_networks_encodings_and_classes_are_errors(frame, model, change, settings, message):
    with pytest.raises(ValueError, match=message):
        hogbatch.train(frame.assign(**change), label="late", init=model, **settings, **USUAL)
