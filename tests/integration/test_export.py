"""`hogbatch export` of trained models: the predictions of `hogbatch predict`, and the server."""

import asyncio
import csv
import json

import numpy as np
import onnxruntime
import pandas as pd
import pytest

import hogbatch
from tests.support.doc_programs import program

ROWS = 300


def table(seed):
    chance = np.random.default_rng(seed)
    size, day = chance.normal(5, 2, ROWS).round(3), chance.integers(0, 700, ROWS)
    color = chance.choice(["red", "blue", "green"], ROWS)
    return pd.DataFrame(
        {
            "size": np.where(chance.random(ROWS) < 0.1, np.nan, size),
            "color": color,
            "day": pd.to_datetime("2013-01-01") + pd.to_timedelta(day, unit="D"),
            "outcome": np.where(size - 5 + 2.0 * (color == "red") > 0, "late", "in time"),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table, and a model that was trained on a table like it."""
    folder = tmp_path_factory.mktemp("export")
    table(1).to_csv(folder / "later.csv", index=False)
    run = hogbatch.train(table(0), label="outcome", hidden=(8,), epochs=3, members=2, quiet=True)
    run.save(folder / "model.safetensors")
    return folder


@pytest.fixture
def predicted(folder, main):
    """What `hogbatch predict` says about the rows of the table: dictionaries by column."""
    main("predict", "model.safetensors", "later.csv", "--output", "predicted.csv", cwd=folder)
    with (folder / "predicted.csv").open() as file:
        return [*csv.DictReader(file)]


def post(app, path, content):
    """The answer, as JSON, of an ASGI application to a request."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": json.dumps(content).encode()}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""}
    asyncio.run(app(scope, receive, send))
    return json.loads(b"".join(message.get("body", b"") for message in sent))


def test_an_onnx_file_predicts_what_the_command_predicts(folder, main, predicted):
    assert main("export", "model.safetensors", "--to", "onnx", cwd=folder).returncode == 0
    rows = table(1)
    rows["day"] = rows["day"].astype("datetime64[s]").astype(np.int64).astype(np.float64)
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    inputs = {each.name: rows[[each.name]].to_numpy() for each in session.get_inputs()}
    label, probabilities = session.run(["label", "probabilities"], inputs)
    assert label.tolist() == [row["prediction"] for row in predicted]
    wanted = [float(row["probability_late"]) for row in predicted]
    np.testing.assert_allclose(probabilities[:, 1], wanted, 1e-5)


def test_the_server_of_the_documentation_predicts_it_too(folder, main, predicted, monkeypatch):
    assert main("export", "model.safetensors", "--to", "onnx", cwd=folder).returncode == 0
    monkeypatch.chdir(folder)
    names = {}
    exec(program("starlette", {}, "export.md"), names)
    rows = table(1).drop(columns="outcome")
    rows["day"] = rows["day"].astype("datetime64[s]").astype(np.int64)
    rows = rows.astype(object).where(rows.notna(), None).to_dict("records")
    found = post(names["app"], "/predict", rows)
    assert found["label"] == [row["prediction"] for row in predicted]
