import json
import os
import resource
import stat
import sys
import tracemalloc
import zlib
from dataclasses import replace

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save

from hogbatch.data.encode import Encoding
from hogbatch.data.facts import Frequencies
from hogbatch.data.raw import Columns
from hogbatch.data.scale import Scaler
from hogbatch.errors import DataError, SaveError
from hogbatch.model.file import FORMAT, load_model, save_model
from hogbatch.model.label_vectors import LabelVectors, NearestRows
from hogbatch.model.network import Network
from hogbatch.model.trained import Model
from tests.support.trained_models import ENCODINGS, SCALER, model_for

COUNTED = replace(model_for("multilabel"), frequencies=Frequencies(9, np.arange(6)))
VECTORS = LabelVectors(
    np.array([0, 2, 2, 3, 3, 3]), np.array([1, 4, 0], np.int32), np.array([0.5, -2, 3], np.float32)
)
DESCRIBED = replace(model_for("multilabel-softmax"), label_vectors=VECTORS)
NEAREST = replace(
    DESCRIBED,
    nearest_rows=NearestRows(
        LabelVectors(
            np.array([0, 1, 1, 1, 2, 3]), np.array([1, 0, 2], np.int32), np.ones(3, np.float32)
        ),
        np.array([0, 2, 2, 3]),
        np.array([0, 5, 3], np.int32),
    ),
)
NAMED = replace(model_for(), feature_names=("age", *"bcde"))


def same(one, other):
    """Whether two models agree in everything."""
    scale = [
        None if each.scaler is None else [*each.scaler.mean, *each.scaler.scale]
        for each in (one, other)
    ]
    frequencies = [
        each.frequencies and (each.frequencies.rows, each.frequencies.of_label.tolist())
        for each in (one, other)
    ]
    return (
        (one.network, one.encoding, one.index_base, one.about, one.columns)
        == (other.network, other.encoding, other.index_base, other.about, other.columns)
        and one.threshold == other.threshold
        and (one.label_vectors is None) == (other.label_vectors is None)
        and all(map(np.array_equal, one.label_vectors or (), other.label_vectors or ()))
        and len(of_rows(one)) == len(of_rows(other))
        and all(map(np.array_equal, of_rows(one), of_rows(other)))
        and scale[0] == scale[1]
        and frequencies[0] == frequencies[1]
        and len(one.members) == len(other.members)
        and all(
            list(mine) == list(theirs) and all((mine[name] == theirs[name]).all() for name in mine)
            for mine, theirs in zip(
                (one.tensors, *one.others), (other.tensors, *other.others), strict=True
            )
        )
    )


def of_rows(model):
    """The arrays of nearest rows."""
    rows = model.nearest_rows
    return () if rows is None else (*rows.vectors, rows.indptr, rows.labels)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def described(text):
    """The metadata of a model file with this description."""
    return {FORMAT: f"{zlib.crc32(text.encode()):08x}{text}"}


def expect_refusal(path, message):
    with pytest.raises(DataError, match=message) as raised:
        load_model(path)
    assert str(path) in str(raised.value)


# Contents ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        *(model_for(loss, output_major=loss == "softmax") for loss in ENCODINGS),
        model_for(output_major=False),
        replace(model_for(scaler=SCALER), index_base=None),
        COUNTED,
        DESCRIBED,
        NEAREST,
        replace(model_for("logistic"), threshold=0.1),
        replace(model_for(), others=tuple(model_for(seed=seed).tensors for seed in range(2, 13))),
    ],
    ids=[
        *ENCODINGS,
        *("input-major", "scaler", "frequencies", "label vectors", "nearest rows"),
        *("threshold", "ensemble"),
    ],
)
def test_a_model_survives_its_file_which_is_equal_for_equal_models(model, path):
    save_model(model, path)
    found, content = load_model(str(path)), path.read_bytes()
    assert same(found, model)
    assert found.frequencies is None or found.frequencies.of_label.dtype == np.int64
    save_model(found, str(path))
    assert path.read_bytes() == content


def test_a_file_from_before_frequencies_and_thresholds_has_none(path):
    save_model(model_for("multilabel"), path)
    with safe_open(path, framework="np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        description = json.loads(file.metadata()[FORMAT][8:])
    assert tensors["layers.0.weight"].shape == (5, 3)  # without padding
    del description["train_rows"], description["threshold"]
    path.write_bytes(save(tensors, described(json.dumps(description))))
    assert same(load_model(path), model_for("multilabel"))


def test_earlier_versions_refuse_a_file_only_if_it_has_label_vectors_or_nearest_rows(path):
    """They refuse fields that they do not know, and would compute other scores."""
    for model, known in ((NEAREST, 2), (DESCRIBED, 1), (COUNTED, 0)):
        save_model(model, path)
        with safe_open(path, framework="np") as file:
            described = json.loads(file.metadata()[FORMAT][8:])
        names = [each for each in ("label_vectors", "nearest_rows") if each in described]
        assert names == ["label_vectors", "nearest_rows"][:known]


def test_only_files_of_logarithms_have_the_largest_label(path):
    """Earlier versions refuse unknown fields, and read models without logarithms."""
    for loss in ENCODINGS:
        save_model(model_for(loss), path)
        with safe_open(path, framework="np") as file:
            encoding = json.loads(file.metadata()[FORMAT][8:])["encoding"]
        assert ("largest" in encoding) == (loss == "squared-log")


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("indptr", [0, 2, 1, 3, 3, 3], "ascending positions"),
        ("indptr", [1, 2, 2, 3, 3, 3], "ascending positions"),
        ("labels", [1, 6, 0], "labels below 6"),
        ("labels", [4, 1, 0], "labels below 6"),
        ("values", [1.0], "expected float32"),
    ],
)
def test_label_vectors_that_would_be_read_out_of_bounds_are_refused(name, changed, message, path):
    array = np.array(changed, getattr(VECTORS, name).dtype)
    save_model(replace(DESCRIBED, label_vectors=VECTORS._replace(**{name: array})), path)
    expect_refusal(path, message)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"indptr": np.array([0, 2, 1, 3])}, "nearest_rows.indptr: expected ascending positions"),
        ({"indptr": np.array([0, 3])}, r"nearest_rows.vectors.labels: expected .* below 1"),
        ({"labels": np.array([0, 6, 3], np.int32)}, "nearest_rows.labels: .* labels below 6"),
        ({"labels": np.array([5, 0, 3], np.int32)}, "nearest_rows.labels: .* labels below 6"),
    ],
)
def test_nearest_rows_that_would_be_read_out_of_bounds_are_refused(changed, message, path):
    save_model(replace(NEAREST, nearest_rows=NEAREST.nearest_rows._replace(**changed)), path)
    expect_refusal(path, message)


def test_nearest_rows_without_label_vectors_are_refused(path):
    save_model(replace(NEAREST, label_vectors=None), path)
    expect_refusal(path, "nearest rows: expected label vectors beside them")


def test_names_survive(path):
    names, about = ("a", "", "a", "💡", '"\\\x00'), {"label": "y", "label_column": "2"}
    model = replace(model_for(), feature_names=names, about=about)
    save_model(model, path)
    assert same(load_model(path), model)
    assert load_model(path).columns == Columns(names, "y", 2)


def test_very_many_names_do_not_swell_the_description(path):
    names = tuple(f"a feature with the number {n}" for n in range(100_000))
    model = replace(model_for(features=100_000, hidden=(1,)), feature_names=names)
    save_model(model, path)
    assert load_model(path).feature_names == names
    assert int.from_bytes(path.read_bytes()[:8], "little") < 10_000  # bytes of the header


def test_labels_keep_their_type(path):
    for classes in (("a", "ü\n", "\ud800"), (0, 1, 2), (False, True), (0, 7), (0.0, 7.0)):
        binary = len(classes) == 2
        encoding = Encoding("binary" if binary else "classes", classes, 1 if binary else 3)
        save_model(replace(model_for("logistic" if binary else "softmax"), encoding=encoding), path)
        read = load_model(path).encoding.classes
        assert read == classes and [*map(type, read)] == [*map(type, classes)]


# Damage ------------------------------------------------------------------------------------------


BIAS = "layers.0.bias"
FEW = {name: each for name, each in model_for().tensors.items() if name != BIAS}


@pytest.mark.parametrize(
    ("model", "changes", "message"),
    [
        *(
            (
                model_for(),
                {"feature_names": names},
                r"features\.names(: expected 5 names|\[\d\]: expected text)",
            )
            for names in (("a",), ("a", "b", "c", "d", 5), ({},) * 5)
        ),
        (
            COUNTED,
            {"frequencies": Frequencies(9, np.arange(5))},
            r"labels.rows: expected int64\[6\]; got int64\[5\]",
        ),
        (model_for(), {"tensors": FEW}, "tensor layers.0.bias is missing"),
        (
            model_for(),
            {"tensors": FEW | {BIAS: np.zeros(4, "<f4")}},
            r"expected float32\[3\]",
        ),
        (model_for(), {"tensors": FEW | {BIAS: np.zeros(3)}}, r"got float64\[3\]"),
    ],
)
def test_parts_that_do_not_fit_the_network_are_named(model, changes, message, path):
    save_model(replace(model, **changes), path)
    expect_refusal(path, message)


@pytest.mark.parametrize(
    ("model", "content", "name"),
    [
        (model_for(), model_for().tensors["layers.1.weight"].tobytes(), "layers.1.weight"),
        (NAMED, b"age", "features.names"),
        (COUNTED, COUNTED.frequencies.of_label.tobytes(), "labels.rows"),
    ],
)
def test_the_damaged_tensor_is_named(path, model, content, name):
    save_model(model, path)
    data = path.read_bytes()
    place = data.index(content)
    path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    expect_refusal(path, f"tensor {name} is damaged")


def test_what_is_no_model_is_named(path):
    expect_refusal(path, "No such file")
    path.mkdir()
    expect_refusal(path, "Is a directory")
    path.rmdir()
    for text in ("", "1 2:0.5\n" * 20):
        path.write_text(text)
        expect_refusal(path, "not a model file")
    path.write_bytes(save({"layers.0.weight": np.zeros(3, np.float32)}))
    expect_refusal(path, "expected a model of format hogbatch-model-1")
    path.write_bytes(save({}, described(json.dumps({"network": {}}))))
    expect_refusal(path, "not a valid model: description: expected the fields network, encoding")


def test_a_file_cut_at_any_length_or_with_a_flipped_bit_is_refused(path):
    model = model_for(hidden=(), scaler=SCALER)
    save_model(model, path)
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        expect_refusal(path, str(path))
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


CHANGES = {  # of the description of a model, by the message of the refusal
    r"encoding.kind: expected 'binary' or .*; got 'x'": {"encoding": {"kind": "x"}},
    "encoding: expected 2 classes and 1 outputs of binary": {"encoding": {"kind": "binary"}},
    "encoding: expected 0 classes and 3 outputs": {"encoding": {"kind": "multilabel"}},
    "encoding: expected classes of one type": {"encoding": {"classes": [2.0, "5", 7.5]}},
    "expected classes of one type, ascending": {"encoding": {"classes": [5.0, 2.0, 7.5]}},
    r"encoding.outputs: expected a whole number; got 3.0": {"encoding": {"outputs": 3.0}},
    "encoding: expected a scale above 0; got 0.0": {"encoding": {"scale": 0}},
    "encoding.offset: expected a finite number or a list; got nan": {
        "encoding": {"offset": np.nan}
    },
    "encoding: expected an offset and a scale of each of 1": {"encoding": {"scale": [1.0, 2.0]}},
    "index_base: expected a whole number from 0 to 1 or null; got 2": {"index_base": 2},
    "about.data: expected text; got 1": {"about": {"data": 1}},
    "about.label_column: expected a number": {"about": {"label_column": "-1"}},
    "train_rows: expected a whole number from 0": {"train_rows": -1},
    "threshold: expected 0.5, or between 0 and 1 of two labels; got 0.4": {"threshold": 0.4},
    "crc32.layers.0.bias: expected a whole number from 0": {"crc32": {"layers.0.bias": -1}},
    "expected one checksum for each tensor": {"crc32": {"layers.9.bias": 1}},
    "network.features: expected a whole number": {"network": {"features": 5.0}},
    "expected 6 features, layers that take the outputs": {"network": {"features": 6}},
    "expected at least one layer; got none": {"network": {"layers": []}},
    "encoding: expected real labels and 3 outputs": {"network": {"loss": "squared"}},
}


@pytest.mark.parametrize("message", CHANGES)
def test_a_description_that_is_not_valid_is_named(path, message):
    save_model(model_for(), path)
    with safe_open(path, framework="np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        description = json.loads(file.metadata()[FORMAT][8:])
    for name, change in CHANGES[message].items():
        nested = isinstance(change, dict)
        description[name] = description[name] | change if nested else change
    path.write_bytes(save(tensors, described(json.dumps(description))))
    expect_refusal(path, message)


def test_numbers_that_no_training_gives_are_named(path):
    for model, message in (
        (model_for(scaler=Scaler(SCALER.mean, -SCALER.scale)), "scaler.scale: expected finite"),
        (model_for(scaler=Scaler(np.full(5, np.inf), SCALER.scale)), "scaler.mean: expected"),
        (replace(COUNTED, frequencies=Frequencies(3, np.arange(6))), "numbers from 0 to 3"),
    ):
        save_model(model, path)
        expect_refusal(path, message)
    path.write_bytes(save({}, described("[" * 50_000)))
    expect_refusal(path, "not a valid model: maximum recursion depth exceeded")


# Saving ------------------------------------------------------------------------------------------


def test_tensors_that_are_views_of_wider_rows_are_saved_without_a_copy_of_them(path):
    network = Network.build(30_000, (60,), 3, "relu", "softmax")
    params = np.zeros(network.parameters, np.float32)
    network.initialise(params, 1)
    encoding = Encoding("classes", (0.0, 1.0, 2.0), 3)
    tensors = network.from_stored(params)
    assert not tensors["layers.0.weight"].flags.c_contiguous
    model = Model(network, tensors, encoding, None, None, {})
    tracemalloc.start()
    try:
        save_model(model, path)
        assert tracemalloc.get_traced_memory()[1] < params.nbytes / 2
    finally:
        tracemalloc.stop()
    assert same(load_model(path), model)


def test_a_full_disk_or_missing_folder_is_named_and_nothing_half_written_stays(path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # it would be incomplete
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
    try:
        with pytest.raises(SaveError, match=f"{path}: cannot save the model: File too large"):
            save_model(model_for(), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert list(path.parent.iterdir()) == []
    with pytest.raises(SaveError, match="No such file or directory"):
        save_model(model_for(), path.parent / "no" / "model.safetensors")


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failure_before_the_rename_keeps_the_earlier_file(path, monkeypatch, call):
    first = model_for(hidden=())
    save_model(first, path)

    def fail(*arguments):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(SaveError, match="Input/output error"):
        save_model(model_for(), path)
    assert same(load_model(path), first)
    assert list(path.parent.iterdir()) == [path]


def test_data_reaches_the_disk_before_its_name_does(path, monkeypatch):
    calls = []
    real = {name: getattr(os, name) for name in ("fsync", "replace")}

    def fsync(descriptor):
        folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        calls.append("sync folder" if folder else "sync file")
        real["fsync"](descriptor)

    def rename(*names):
        calls.append("rename")
        real["replace"](*names)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", rename)
    save_model(model_for(), path)
    assert calls == ["sync file", "rename", "sync folder"]


def test_a_path_may_begin_with_the_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    save_model(COUNTED, "~/m.safetensors")
    assert (tmp_path / "m.safetensors").is_file()
    assert same(load_model("~/m.safetensors"), COUNTED)
