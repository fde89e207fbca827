import json
import os
import resource
import stat
import tracemalloc
import zlib
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save

from hogbatch.data.encode import Encoding
from hogbatch.data.raw import Columns
from hogbatch.errors import DataError, SaveError
from hogbatch.model import file as checkpoint
from hogbatch.model.file import load_model, save_model
from hogbatch.model.metrics import Frequencies
from hogbatch.model.network import Network
from hogbatch.model.trained import Model
from tests.support.trained_models import ENCODINGS, SCALER, model_for


def with_frequencies(model):
    return replace(model, frequencies=Frequencies(9, np.arange(6)))


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
        and scale[0] == scale[1]
        and frequencies[0] == frequencies[1]
        and list(one.tensors) == list(other.tensors)
        and all((one.tensors[name] == other.tensors[name]).all() for name in one.tensors)
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.fixture
def scaler():
    return SCALER


class TestFile:
    @pytest.mark.parametrize("output_major", [False, True], ids=["by input", "by neuron"])
    @pytest.mark.parametrize("loss", ENCODINGS)
    def test_a_model_survives_its_file(self, loss, output_major, path):
        model = model_for(loss, output_major=output_major)
        save_model(model, path)
        assert same(load_model(path), model)

    def test_a_scaler_and_an_unknown_index_base_survive(self, path, scaler):
        model = replace(model_for(scaler=scaler), index_base=None)
        save_model(model, str(path))
        assert same(load_model(str(path)), model)

    def test_the_labels_frequencies_survive(self, path):
        model = with_frequencies(model_for("multilabel"))
        save_model(model, path)
        assert same(load_model(path), model)
        assert load_model(path).frequencies.of_label.dtype == np.int64

    def test_a_file_from_before_frequencies_has_none(self, path):
        save_model(model_for("multilabel"), path)
        with checkpoint.safe_open(path, framework="np") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            description = json.loads(file.metadata()[checkpoint.FORMAT][8:])
        del description["train_rows"]
        text = json.dumps(description)
        path.write_bytes(
            save(tensors, {checkpoint.FORMAT: f"{zlib.crc32(text.encode()):08x}{text}"})
        )
        assert same(load_model(path), model_for("multilabel"))

    @pytest.mark.parametrize("names", [("a", "b", "c", "", "b"), ("é", "💡", '"', "\\", "\x00")])
    def test_names_survive(self, names, path):
        about = {"label": "y", "label_column": "2"}
        model = replace(model_for(), feature_names=names, about=about)
        save_model(model, path)
        assert same(load_model(path), model)
        assert load_model(path).columns == Columns(names, "y", 2)
        assert load_model(path).feature_names == names

    def test_very_many_names_do_not_swell_the_description(self, path):
        names = tuple(f"a feature with the number {n}" for n in range(100_000))
        model = replace(model_for(features=100_000, hidden=(1,)), feature_names=names)
        save_model(model, path)
        assert load_model(path).feature_names == names
        assert int.from_bytes(path.read_bytes()[:8], "little") < 10_000  # bytes of the header

    @pytest.mark.parametrize("names", [("a",), ("a", "b", "c", "d", 5), ({},) * 5])
    def test_names_that_do_not_fit_are_refused(self, names, path):
        save_model(replace(model_for(), feature_names=names), path)
        with pytest.raises(DataError, match=r"features\.names: expected 5 names"):
            load_model(path)

    def test_damaged_names_are_named(self, path):
        save_model(replace(model_for(), feature_names=("age", *"bcde")), path)
        path.write_bytes(path.read_bytes().replace(b"age", b"ape"))
        with pytest.raises(DataError, match=r"tensor features\.names is damaged"):
            load_model(path)

    def test_damaged_frequencies_are_named(self, path):
        model = with_frequencies(model_for("multilabel"))
        save_model(model, path)
        data = path.read_bytes()
        place = data.index(model.frequencies.of_label.tobytes())
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(DataError, match=r"tensor labels.rows is damaged"):
            load_model(path)

    def test_frequencies_of_other_labels_are_refused(self, path):
        counts = Frequencies(9, np.arange(5))
        save_model(replace(model_for("multilabel"), frequencies=counts), path)
        with pytest.raises(DataError, match=r"labels.rows: expected int64\[6\]; got int64\[5\]"):
            load_model(path)

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

    def test_a_file_cut_at_any_length_is_refused(self, path, scaler):
        save_model(model_for(hidden=(), scaler=scaler), path)
        data = path.read_bytes()
        for length in range(len(data)):
            path.write_bytes(data[:length])
            with pytest.raises(DataError, match=str(path)):
                load_model(path)

    def test_no_flipped_bit_goes_unnoticed(self, path, scaler):
        model = model_for(hidden=(), scaler=scaler)
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

    @pytest.mark.parametrize("classes", [("a", "ü\n", "\ud800"), (False, True)])
    def test_labels_keep_their_type(self, classes, path):
        model = replace(model_for(), encoding=Encoding("classes", classes, len(classes)))
        save_model(model, path)
        read = load_model(path).encoding.classes
        assert read == classes and [*map(type, read)] == [*map(type, classes)]


class TestSave:
    def test_tensors_that_are_views_of_wider_rows_are_saved_without_a_copy_of_them(self, path):
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

    def test_equal_models_make_equal_files(self, path, scaler):
        files = set()
        for _ in range(5):
            save_model(model_for(scaler=scaler), path)
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

        monkeypatch.setattr(os, call, fail)
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

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(os, "replace", rename)
        save_model(model_for(), path)
        assert calls == ["sync file", "rename", "sync folder"]

    def test_a_folder_that_does_not_exist_is_a_save_error(self, tmp_path):
        with pytest.raises(SaveError, match="No such file or directory"):
            save_model(model_for(), tmp_path / "no" / "model.safetensors")
