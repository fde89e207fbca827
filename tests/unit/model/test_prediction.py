"""`evaluate_file` and `predict_file`, against the definitions on all scores at once."""

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn import metrics

from hogbatch.config.losses import LOSSES
from hogbatch.config.metrics import fitting
from hogbatch.data.encode import Encoding
from hogbatch.data.facts import Frequencies
from hogbatch.data.raw import ReadOptions
from hogbatch.errors import SaveError, UsageError
from hogbatch.kernels import blocks
from hogbatch.model import trained
from hogbatch.model.file import save_model
from hogbatch.model.network import Network
from hogbatch.model.prediction import (
    DataFile,
    evaluate_file,
    predict_file,
    write_lines,
)
from hogbatch.model.trained import Model

FEATURES, LABELS, ROWS, TRAINED = 6, 30, 40, 100


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "OUTPUTS", 7)


def random_tensors(network):
    random = np.random.default_rng(1)
    return {each.name: random.standard_normal(each.shape, np.float32) for each in network.tensors()}


def model_for(loss, outputs=LABELS, output_major=True, activation="tanh"):
    network = Network.build(FEATURES, (16,), outputs, activation, loss, output_major)
    random, tensors = np.random.default_rng(1), random_tensors(network)
    if loss == "softmax":
        return Model(network, tensors, Encoding("classes", (*range(2, 32),), 30), None, 0, {})
    counts = Frequencies(TRAINED, random.integers(0, TRAINED, outputs))
    encoding = Encoding("multilabel", (), outputs)
    return Model(network, tensors, encoding, None, 0, {}, counts)


class Case:
    """A model file and a data file, and what is in them."""

    def __init__(self, folder, model):
        random = np.random.default_rng(2)
        self.model, self.outputs = model, model.network.outputs
        self.rows = random.standard_normal((ROWS, FEATURES)).round(3).astype(np.float32)
        self.labels = [
            np.sort(random.permutation(self.outputs)[: row % 4]).tolist() for row in range(ROWS)
        ]
        lines = [f"{ROWS} {FEATURES} {self.outputs}"]
        for row, labels in zip(self.rows, self.labels, strict=True):
            cells = " ".join(f"{n}:{value:.3f}" for n, value in enumerate(row))
            lines.append(f"{','.join(map(str, labels))} {cells}")
        self.data, self.path = str(folder / "data.xmc"), str(folder / "model.safetensors")
        (folder / "data.xmc").write_text("\n".join(lines) + "\n")
        save_model(model, self.path)

    def evaluate(self, **flags):
        return evaluate_file(self.path, DataFile(self.data), **flags)

    def label_with_classes(self):
        """Replace the lists of labels by classes of the model `softmax`."""
        lines = Path(self.data).read_text().splitlines()[1:]
        labelled = [f"{2 + n % 7} {line.split(' ', 1)[1]}" for n, line in enumerate(lines)]
        self.data = self.data.replace(".xmc", ".svm")
        Path(self.data).write_text("\n".join(labelled) + "\n")

    def predict(self, **flags):
        return list(predict_file(self.path, DataFile(self.data), **flags))

    def by_definition(self):
        """Loss, P@k and PSP@k, row by row."""
        scores = self.model.scores(self.rows).astype(np.float64)
        weights = (
            1
            + (math.log(TRAINED) - 1) * 2.5**0.55 * (self.model.frequencies.of_label + 1.5) ** -0.55
        )
        best, losses = np.argsort(-scores, axis=1, kind="stable"), []
        for z, labels in zip(scores, self.labels, strict=True):
            if self.model.network.loss == "multilabel":
                losses.append(np.logaddexp(0, z).sum() - z[labels].sum())
            else:
                losses.append(np.log(np.exp(z).sum()) - z[labels].mean() if labels else 0)
        found = {"rows": ROWS, "loss": np.mean(losses)}
        for k in (1, 3, 5):
            correct = [set(row[:k]) & set(own) for row, own in zip(best, self.labels, strict=True)]
            found[f"P@{k}"] = sum(map(len, correct)) / k / len(correct)
            reached = sum(weights[list(each)].sum() for each in correct)
            found[f"PSP@{k}"] = reached / sum(
                np.sort(weights[own])[::-1][:k].sum() for own in self.labels
            )
        return found


@pytest.fixture
def case(tmp_path):
    return Case(tmp_path, model_for("multilabel-softmax"))


def test_what_evaluate_measures_is_what_predict_prints(tmp_path):
    random, seconds = np.random.default_rng(3), 1_700_000_000
    network = Network.build(FEATURES, (), 1, "relu", "squared", False)
    tensors = random_tensors(network)
    encoding = Encoding("real", (), 1, offset=seconds + 0.25, scale=0.75)
    save_model(Model(network, tensors, encoding, None, None, {}), tmp_path / "model")
    rows = random.standard_normal((ROWS, FEATURES + 1))
    rows[:, -1] += seconds
    np.savetxt(tmp_path / "a.csv", rows, fmt="%.17g", delimiter=",")
    data = DataFile(str(tmp_path / "a.csv"))
    results = evaluate_file(tmp_path / "model", data)
    printed = np.array(list(predict_file(tmp_path / "model", data)), float)
    errors = printed - rows[:, -1]
    assert results["rmse"] == pytest.approx(np.sqrt((errors**2).mean()), rel=1e-12)
    assert results["loss"] == pytest.approx((errors**2).mean() / 2, rel=1e-12)


class TestEvaluate:
    @pytest.mark.parametrize("loss", ["logistic", "softmax", "squared"])
    def test_weights_are_those_of_scikit_learn(self, loss, tmp_path, monkeypatch):
        random = np.random.default_rng(4)
        rows, times = random.standard_normal((ROWS, FEATURES)), np.arange(ROWS) % 4
        classes, kind = {"logistic": (2, "binary"), "softmax": (3, "classes")}.get(
            loss, (0, "real")
        )
        network = Network.build(FEATURES, (), classes if classes > 2 else 1, "relu", loss)
        encoding = Encoding(kind, tuple(range(classes)), network.outputs)
        model = Model(network, random_tensors(network), encoding, None, None, {})
        save_model(model, tmp_path / "model")
        y = random.integers(0, classes, ROWS) if classes else random.standard_normal(ROWS)
        np.savez(tmp_path / "data.npz", X=rows, y=y, times=times)
        monkeypatch.setattr("hogbatch.config.metrics.MAX_SCORES", 0)  # for softmax
        found = evaluate_file(
            tmp_path / "model", DataFile(str(tmp_path / "data.npz"), ReadOptions(weight="times"))
        )
        assert found["rows"] == np.count_nonzero(times)
        predicted, weights = model.predict(rows), {"sample_weight": times}
        if classes:
            fractions = model.predict_proba(rows).astype(float)
            fractions /= fractions.sum(axis=1, keepdims=True)  # float32 is too coarse for a warning
            expected = metrics.log_loss(y, fractions, **weights)
            assert "log_loss" not in found, "it is the loss"
            assert found["accuracy"] == pytest.approx(
                metrics.accuracy_score(y, predicted, **weights)
            )
        else:
            expected = metrics.mean_squared_error(y, predicted, **weights) / 2
            assert found["mae"] == pytest.approx(
                metrics.mean_absolute_error(y, predicted, **weights)
            )
        assert found["loss"] == pytest.approx(expected, rel=1e-5)

    @pytest.mark.parametrize("loss", ["multilabel", "multilabel-softmax"])
    def test_results_are_the_definitions(self, loss, tmp_path, monkeypatch):
        case = Case(tmp_path, model_for(loss, output_major=loss == "multilabel"))
        expected = case.by_definition()
        assert 0 < expected["P@5"] < 1
        whole = case.evaluate()
        assert {name: whole[name] for name in expected} == pytest.approx(expected, rel=1e-5)
        assert {*whole} == {"rows", "loss", *(each.name for each in fitting(LOSSES[loss]))}
        monkeypatch.setattr("hogbatch.config.metrics.MAX_SCORES", 0)
        assert case.evaluate() == pytest.approx(
            {
                name: value
                for name, value in whole.items()
                if name in ("rows", "loss") or "@" in name
            },
            rel=1e-5,
        )

    def test_classes_whose_scores_are_too_many_have_the_metrics_of_the_best(
        self, tmp_path, monkeypatch
    ):
        case = Case(tmp_path, model_for("softmax"))
        case.label_with_classes()
        whole = case.evaluate()
        monkeypatch.setattr("hogbatch.config.metrics.MAX_SCORES", 0)
        best = ("rows", "loss", "accuracy", "balanced_accuracy", "f1_macro")
        assert case.evaluate() == pytest.approx({name: whole[name] for name in best}, rel=1e-5)

    def test_parts_change_nothing(self, case, monkeypatch):
        whole = case.evaluate()
        monkeypatch.setattr(trained, "CHUNK", 16 * 3)  # three rows of the hidden layer
        assert case.evaluate() == pytest.approx(whole, rel=1e-5)

    def test_a_model_without_frequencies_has_no_propensities(self, case, tmp_path):
        without = Case(tmp_path, replace(case.model, frequencies=None))
        results = without.evaluate()
        assert not [name for name in results if name.startswith("PSP")]
        assert results == {name: case.evaluate()[name] for name in results}

    def test_a_row_whose_scores_are_not_finite_is_refused_as_in_predictions(self, tmp_path):
        case = Case(tmp_path, model_for("multilabel-softmax", activation="relu"))
        lines = Path(case.data).read_text().splitlines()
        lines[6] = "0,3 " + " ".join(f"{n}:3e38" for n in range(FEATURES))
        Path(case.data).write_text("\n".join(lines) + "\n")
        for use in (case.evaluate, lambda: case.predict(top=1)):
            with pytest.raises(UsageError, match=r"row 5 .*: the model's scores are beyond"):
                use()


def cells(line):
    """The labels and numbers of a line of XMC text."""
    pairs = [cell.split(":") for cell in line.split()]
    return [int(label) for label, _ in pairs], [float(value) for _, value in pairs]


class TestPredict:
    def test_the_top_are_a_sparse_matrix_as_xmc_text(self, case):
        header, *lines = case.predict(top=4)
        assert header == f"{ROWS} {LABELS}" and len(lines) == ROWS
        fractions = case.model.predict_proba(case.rows)
        for line, best, fraction in zip(
            lines, case.model.top(case.rows, 4), fractions, strict=True
        ):
            labels, values = cells(line)
            assert labels == sorted(best)
            assert values == pytest.approx(fraction[labels], rel=1e-4)

    def test_the_top_of_classes_are_raw_labels_best_first(self, tmp_path):
        case = Case(tmp_path, model_for("softmax"))
        expected = case.model.top(case.rows, 3) + 2
        assert case.predict(top=3) == [",".join(map(str, row)) for row in expected]
        with pytest.raises(UsageError, match="expected k from 1 to 30; got 31"):
            case.predict(top=31)

    def test_parts_change_nothing(self, tmp_path, monkeypatch):
        case = Case(tmp_path, model_for("multilabel"))
        whole, fractions = case.predict(), np.loadtxt(case.predict(proba=True))
        monkeypatch.setattr("hogbatch.model.prediction.MAX_CELLS", 3 * LABELS)
        assert case.predict() == whole
        np.testing.assert_allclose(np.loadtxt(case.predict(proba=True)), fractions, rtol=1e-4)
        likely = case.model.predict(case.rows)
        assert whole == [",".join(map(str, np.flatnonzero(row))) for row in likely]

    def test_what_cannot_be_predicted_is_refused_before_the_first_line(self, case):
        with pytest.raises(UsageError, match="ranks labels"):
            predict_file(case.path, DataFile(case.data))

    def test_lines_are_written_as_they_come(self, tmp_path):
        output = tmp_path / "lines"

        def lines():
            yield "one"
            assert output.exists()
            yield "two"

        write_lines(lines(), str(output))
        assert output.read_text() == "one\ntwo\n"
        with pytest.raises(SaveError, match="Is a directory"):
            write_lines(["one"], str(tmp_path))


@pytest.mark.parametrize(
    ("classes", "lines"),
    [
        ((1700000000.0, 1700000000.5), ["1700000000", "1700000000.5"]),
        ((False, True), ["False", "True"]),
        ((-3, 7), ["-3", "7"]),
        (("a,b", "ü\n"), ["a,b", r"ü\n"]),
    ],
)
def test_labels_are_written_in_full(tmp_path, classes, lines):
    quoted = {"a,b": '"a,b"'}
    network = Network.build(1, (), 2, "relu", "softmax")
    model = Model(network, random_tensors(network), Encoding("classes", classes, 2), None, 0, {})
    save_model(model, tmp_path / "m.safetensors")
    (tmp_path / "x.csv").write_text("-9,0\n9,0\n")
    what = (str(tmp_path / "m.safetensors"), DataFile(str(tmp_path / "x.csv"), ReadOptions(("1",))))
    assert set(predict_file(*what)) == set(lines)
    assert set(predict_file(*what, top=1)) == {quoted.get(line, line) for line in lines}
    predicted = model.predict([[-9.0], [9.0]]).tolist()
    assert set(predicted) == set(classes) and type(predicted[0]) is type(classes[0])


class TestTable:
    """Predictions as a CSV file."""

    def read(self, case, **flags):
        """Header and rows of the file."""
        header, *rows = csv.reader(
            predict_file(case.path, DataFile(case.data), table=True, **flags)
        )
        assert len(rows) == ROWS and {len(row) for row in rows} == {len(header)}
        return header, rows

    def test_classes_have_a_label_and_probabilities(self, tmp_path, monkeypatch):
        classes = tuple(sorted(["a,b", 'a "b"', "new\nline", *map(str, range(3, 30))]))
        model = replace(model_for("softmax"), encoding=Encoding("classes", classes, LABELS))
        case = Case(tmp_path, model)
        header, rows = self.read(case)
        assert header == ["prediction", *(f"probability_{name}" for name in classes)]
        assert [row[0] for row in rows] == model.predict(case.rows).tolist()
        fractions = np.array([row[1:] for row in rows], float)
        np.testing.assert_allclose(fractions, model.predict_proba(case.rows), rtol=1e-4)
        assert self.read(case, proba=True) == (header[1:], [row[1:] for row in rows])
        header, best = self.read(case, top=2)
        assert header == ["top_1", "top_2"] and [row[0] for row in best] == [row[0] for row in rows]
        monkeypatch.setattr("hogbatch.model.prediction.MAX_CLASSES", LABELS - 1)
        assert self.read(case) == (["prediction"], [row[:1] for row in rows])
        monkeypatch.setattr("hogbatch.model.prediction.MAX_CELLS", 3 * LABELS)
        assert self.read(case) == (["prediction"], [row[:1] for row in rows])

    def test_label_lists_are_one_cell(self, tmp_path):
        case = Case(tmp_path, model_for("multilabel"))
        header, rows = self.read(case)
        assert header == ["prediction"] and [row[0] for row in rows] == case.predict()
        header, rows = self.read(case, proba=True)
        assert header == [f"probability_{n}" for n in range(LABELS)]
        table = list(predict_file(case.path, DataFile(case.data), top=4, table=True))
        assert table == case.predict(top=4), "XMC text"

    def test_what_cannot_be_predicted_is_refused_before_the_first_line(self, case):
        with pytest.raises(UsageError, match="ranks labels"):
            predict_file(case.path, DataFile(case.data), table=True)


@pytest.mark.parametrize(
    ("loss", "encoding", "header"),
    [
        ("squared", Encoding("real", (), 1), ["prediction"]),
        ("hinge", Encoding("binary", (False, True), 1), ["prediction"]),
        (
            "logistic",
            Encoding("binary", (0.0, 1.5), 1),
            ["prediction", "probability_0", "probability_1.5"],
        ),
    ],
)
def test_the_table_of_one_output_has_what_the_loss_defines(tmp_path, loss, encoding, header):
    network = Network.build(1, (), 1, "relu", loss)
    model = Model(network, random_tensors(network), encoding, None, None, {})
    save_model(model, tmp_path / "m.safetensors")
    (tmp_path / "x.csv").write_text("-9,0\n9,0\n")
    what = (str(tmp_path / "m.safetensors"), DataFile(str(tmp_path / "x.csv"), ReadOptions(("1",))))
    found = list(predict_file(*what, table=True))
    assert found[0].split(",") == header
    assert [line.split(",")[0] for line in found[1:]] == list(predict_file(*what))
