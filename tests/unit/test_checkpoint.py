import json
import os
import resource
import stat
import subprocess
import sys
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.numpy import save

from hogbatch import checkpoint
from hogbatch.checkpoint import Model, load_model, save_model
from hogbatch.data.batch import csr_inputs, dense_inputs
from hogbatch.data.encode import Encoding
from hogbatch.data.standardize import Standardizer
from hogbatch.errors import DataError, SaveError, UsageError
from hogbatch.losses import LOSSES, probabilities
from hogbatch.models import Network

ENCODINGS = {
    "logistic": Encoding("binary", (-1.0, 1.0), 1),
    "hinge": Encoding("binary", (-1.0, 1.0), 1),
    "softmax": Encoding("classes", (2.0, 5.0, 7.5), 3),
    "multilabel": Encoding("multilabel", (), 6),
    "squared": Encoding("real", (), 1, offset=40.0, scale=2.5),
}


def model_for(loss="softmax", features=5, hidden=(3,), standardizer=None):
    encoding = ENCODINGS[loss]
    network = Network.build(features, hidden, encoding.outputs, "tanh", loss)
    random = np.random.default_rng(1)
    tensors = {
        each.name: random.standard_normal(each.shape, np.float32) for each in network.tensors()
    }
    return Model(network, tensors, encoding, standardizer, 1, {"version": "0.1", "data": "é"})


def expected_scores(model, rows):
    """The formula, on real tensors and in float64."""
    for index, layer in enumerate(model.network.layers):
        weight, bias = (model.tensors[f"layers.{index}.{part}"] for part in ("weight", "bias"))
        rows = rows @ weight.astype(np.float64) + bias
        rows = np.tanh(rows) if layer.activation == "tanh" else rows
    return rows


def same(one, other):
    """Whether two models agree in everything."""
    scale = [
        None if each.standardizer is None else [*each.standardizer.mean, *each.standardizer.scale]
        for each in (one, other)
    ]
    return (
        (one.network, one.encoding, one.index_base, one.about)
        == (other.network, other.encoding, other.index_base, other.about)
        and scale[0] == scale[1]
        and list(one.tensors) == list(other.tensors)
        and all((one.tensors[name] == other.tensors[name]).all() for name in one.tensors)
    )


@pytest.fixture
def rows():
    """Rows [7, 5] with some zeros."""
    random = np.random.default_rng(2)
    return (random.standard_normal((7, 5)) * (random.random((7, 5)) < 0.6)).astype(np.float32)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.fixture
def standardizer():
    return Standardizer(np.arange(5.0), np.arange(1.0, 6.0) / 3)


class TestFile:
    @pytest.mark.parametrize("loss", ENCODINGS)
    def test_a_model_survives_its_file(self, loss, path):
        model = model_for(loss)
        save_model(model, path)
        assert same(load_model(path), model)

    def test_a_standardizer_and_an_unknown_index_base_survive(self, path, standardizer):
        model = replace(model_for(standardizer=standardizer), index_base=None)
        save_model(model, str(path))
        assert same(load_model(str(path)), model)

    def test_tensors_lie_in_the_file_unpadded_under_their_names(self, path):
        save_model(model_for(), path)
        with checkpoint.safe_open(path, framework="np") as file:
            assert file.get_tensor("layers.0.weight").shape == (5, 3)

    @pytest.mark.parametrize("kind", ["missing", "directory", "empty", "text"])
    def test_what_is_no_model_is_named(self, kind, path):
        if kind == "directory":
            path.mkdir()
        elif kind != "missing":
            path.write_text("" if kind == "empty" else "1 2:0.5\n" * 20)
        with pytest.raises(DataError, match=str(path)):
            load_model(path)

    def test_safetensors_of_another_program_are_refused(self, path):
        path.write_bytes(save({"layers.0.weight": np.zeros(3, np.float32)}))
        with pytest.raises(DataError, match=r"expected a model of format hogbatch-model-1"):
            load_model(path)

    def test_a_file_cut_at_any_length_is_refused(self, path, standardizer):
        save_model(model_for(hidden=(), standardizer=standardizer), path)
        data = path.read_bytes()
        for length in range(len(data)):
            path.write_bytes(data[:length])
            with pytest.raises(DataError, match=str(path)):
                load_model(path)

    def test_no_flipped_bit_goes_unnoticed(self, path, standardizer):
        model = model_for(hidden=(), standardizer=standardizer)
        save_model(model, path)
        data = path.read_bytes()
        refused = 0
        for place in range(len(data)):
            damaged = bytearray(data)
            damaged[place] ^= 1 << place % 8
            path.write_bytes(damaged)
            try:
                # Where JSON ignores the damage (a space became a tab) nothing may have changed.
                assert same(load_model(path), model), place
            except DataError as error:
                assert str(path) in str(error)
                refused += 1
        assert refused > 0.95 * len(data)

    def test_the_damaged_tensor_is_named(self, path):
        model = model_for()
        save_model(model, path)
        data = path.read_bytes()
        place = data.index(model.tensors["layers.1.weight"].tobytes())
        path.write_bytes(data[:place] + bytes([data[place] ^ 64]) + data[place + 1 :])
        with pytest.raises(DataError, match=r"tensor layers.1.weight is damaged"):
            load_model(path)

    @pytest.mark.parametrize(
        ("tensors", "message"),
        [
            ({"layers.0.bias": None}, "tensor layers.0.bias is missing"),
            ({"layers.0.bias": np.zeros(4, np.float32)}, r"layers.0.bias: expected float32\[3\]"),
            ({"layers.0.bias": np.zeros(3)}, r"got float64\[3\]"),
        ],
    )
    def test_tensors_that_do_not_fit_the_network_are_named(self, path, tensors, message):
        model = model_for()
        changed = {
            name: each for name, each in (model.tensors | tensors).items() if each is not None
        }
        save_model(replace(model, tensors=changed), path)
        with pytest.raises(DataError, match=message):
            load_model(path)

    def test_a_description_that_lacks_something_is_refused(self, path):
        text = json.dumps({"network": {}})
        checksum = f"{zlib.crc32(text.encode()):08x}"
        path.write_bytes(save({}, {checkpoint.FORMAT: checksum + text}))
        with pytest.raises(DataError, match="description of the model is incomplete"):
            load_model(path)


class TestSave:
    def test_equal_models_make_equal_files(self, path, standardizer):
        files = set()
        for _ in range(5):
            save_model(model_for(standardizer=standardizer), path)
            files.add(path.read_bytes())
        assert len(files) == 1

    def test_a_full_disk_is_named_and_nothing_half_written_stays(self, path):
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
        try:
            with pytest.raises(SaveError, match=f"{path}: cannot save the model: File too large"):
                save_model(model_for(), path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        assert list(path.parent.iterdir()) == []

    @pytest.mark.parametrize("call", ["fsync", "replace"])
    def test_a_failure_before_the_rename_keeps_the_earlier_file(self, path, monkeypatch, call):
        first = model_for(hidden=())
        save_model(first, path)

        def fail(*arguments):
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(checkpoint.os, call, fail)
        with pytest.raises(SaveError, match="Input/output error"):
            save_model(model_for(), path)
        assert same(load_model(path), first)
        assert list(path.parent.iterdir()) == [path]

    def test_data_reaches_the_disk_before_its_name_does(self, path, monkeypatch):
        calls = []
        real = {name: getattr(os, name) for name in ("fsync", "replace")}

        def fsync(descriptor):
            folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            calls.append("sync folder" if folder else "sync file")
            real["fsync"](descriptor)

        def rename(*names):
            calls.append("rename")
            real["replace"](*names)

        monkeypatch.setattr(checkpoint.os, "fsync", fsync)
        monkeypatch.setattr(checkpoint.os, "replace", rename)
        save_model(model_for(), path)
        assert calls == ["sync file", "rename", "sync folder"]

    def test_a_folder_that_does_not_exist_is_a_save_error(self, tmp_path):
        with pytest.raises(SaveError, match="No such file or directory"):
            save_model(model_for(), tmp_path / "no" / "model.safetensors")


class TestPrediction:
    @pytest.mark.parametrize("hidden", [(), (3,), (20, 4)])
    def test_scores_are_the_formula(self, hidden, rows):
        model = model_for(hidden=hidden)
        got = model.scores(rows)
        assert got.dtype == np.float32
        assert_allclose(got, expected_scores(model, rows), rtol=1e-5, atol=1e-5)

    def test_every_form_of_input_gives_the_same_scores(self, rows):
        model = model_for()
        sparse = scipy.sparse.csr_array(rows)

        @dataclass
        class Bare:
            indptr: np.ndarray
            indices: np.ndarray
            data: np.ndarray

        csr = csr_inputs(sparse.indptr.astype(np.int64), sparse.indices, sparse.data)
        forms = (
            *(rows.astype(np.float64), rows.tolist(), np.asfortranarray(rows), dense_inputs(rows)),
            *(sparse, csr, Bare(sparse.indptr, sparse.indices, sparse.data)),
        )
        for form in forms:
            assert_allclose(model.scores(form), model.scores(rows), rtol=1e-5, atol=1e-6)

    def test_scipy_matrices_with_repeated_and_unsorted_indices_are_summed(self):
        model = model_for(standardizer=Standardizer(np.ones(5), np.ones(5)))
        unsorted = scipy.sparse.csr_array(([1.0, 2.0, 3.0], [4, 0, 4], [0, 3]), shape=(1, 5))
        assert_allclose(model.scores(unsorted), model.scores([[2, 0, 0, 0, 4]]), rtol=1e-6)
        assert unsorted.nnz == 3

    @pytest.mark.parametrize("sparse", [False, True])
    @pytest.mark.parametrize("scaled", [False, True])
    def test_chunks_change_nothing(self, rows, sparse, scaled, monkeypatch, standardizer):
        model = model_for(standardizer=standardizer if scaled else None)
        given = scipy.sparse.csr_array(rows) if sparse else rows
        whole, best = model.scores(given), model.top(given, 2)
        monkeypatch.setattr(checkpoint, "CHUNK", 15)  # 3 rows of 5 features
        assert_allclose(model.scores(given), whole, rtol=1e-5, atol=1e-6)
        assert_array_equal(model.top(given, 2), best)

    @pytest.mark.parametrize("sparse", [False, True])
    def test_rows_are_standardised_inside(self, rows, sparse, standardizer):
        model = model_for(standardizer=standardizer)
        scaled = (rows - standardizer.mean) / standardizer.scale
        given = scipy.sparse.csr_array(rows) if sparse else rows
        assert_allclose(model.scores(given), expected_scores(model, scaled), rtol=1e-5, atol=1e-5)

    def test_no_rows_give_no_scores(self):
        model = model_for()
        assert model.scores(np.empty((0, 5))).shape == (0, 3)
        assert model.predict(np.empty((0, 5))).shape == (0,)
        assert model.predict_proba(np.empty((0, 5))).shape == (0, 3)

    @pytest.mark.parametrize("loss", ["logistic", "hinge"])
    def test_binary_predictions_are_raw_labels_by_sign(self, loss, rows):
        model = model_for(loss, hidden=())
        signs = np.where(model.scores(rows)[:, 0] > 0, 1.0, -1.0)
        assert len(set(signs)) == 2
        assert_array_equal(model.predict(rows), signs)

    def test_class_predictions_are_the_raw_labels_of_the_highest_score(self, rows):
        model = model_for("softmax")
        labels = [
            ENCODINGS["softmax"].classes[place] for place in model.scores(rows).argmax(axis=1)
        ]
        assert_array_equal(model.predict(rows), labels)

    def test_multilabel_predictions_are_labels_likelier_than_not(self, rows):
        model = model_for("multilabel")
        likely = model.predict_proba(rows) > 0.5
        assert_array_equal(model.predict(rows), likely)
        assert model.predict(rows).dtype == np.uint8

    def test_real_predictions_are_in_the_unit_of_the_labels(self, rows):
        model = model_for("squared")
        assert_array_equal(model.predict(rows), model.scores(rows)[:, 0] * np.float32(2.5) + 40)

    def test_probabilities_are_those_of_the_loss(self, rows):
        model = model_for("logistic")
        assert_array_equal(
            model.predict_proba(rows), probabilities(LOSSES["logistic"], model.scores(rows))
        )

    @pytest.mark.parametrize("k", [1, 3, 6])
    def test_top_columns_come_best_first(self, rows, k):
        model = model_for("multilabel")
        expected = np.argsort(-model.scores(rows), axis=1)[:, :k]
        assert_array_equal(model.top(rows, k), expected)

    def test_equal_scores_come_by_column(self):
        network = Network.build(5, (), 100, "relu", "multilabel")
        tensors = {each.name: np.zeros(each.shape, np.float32) for each in network.tensors()}
        tensors["layers.0.bias"][::2] = 1
        model = Model(network, tensors, Encoding("multilabel", (), 100), None, None, {})
        assert model.top(np.zeros((1, 5)), 100)[0].tolist() == [
            *range(0, 100, 2),
            *range(1, 100, 2),
        ]

    @pytest.mark.parametrize("k", [0, 7])
    def test_top_asks_for_columns_that_exist(self, rows, k):
        with pytest.raises(UsageError, match=f"expected k from 1 to 6; got {k}"):
            model_for("multilabel").top(rows, k)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (np.zeros((2, 4)), "expected 5 features; got 4"),
            (np.zeros(5), r"expected a matrix \[rows, features\]; got 1 dimensions"),
            ([["a"] * 5], "expected a matrix of numbers"),
            (dense_inputs(np.zeros((2, 6), np.float32)), "expected 5 features; got 6"),
            (scipy.sparse.csr_array((2, 6)), "expected 5 features; got 6"),
            (scipy.sparse.csc_array((2, 5)), r"got csc; call its tocsr\(\)"),
            (
                csr_inputs(np.array([0, 1]), np.array([5], np.int32), np.ones(1, np.float32)),
                "expected features 0 to 4; got 5 to 5",
            ),
        ],
    )
    def test_rows_that_do_not_fit_are_refused(self, given, message):
        with pytest.raises(UsageError, match=message):
            model_for().scores(given)


PREDICT = """
import sys
import numpy as np
from hogbatch.checkpoint import load_model

load_model(sys.argv[1]).predict(np.zeros((2, 5), np.float32))
heavy = {"numba", "llvmlite", "zmq", "cupy", "scipy", "msgspec", "sklearn"}
print(sorted(heavy & {name.split(".")[0] for name in sys.modules}))
"""


def test_prediction_needs_numpy_and_safetensors_alone(path):
    save_model(model_for(), path)
    done = subprocess.run(
        [sys.executable, "-c", PREDICT, path],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
