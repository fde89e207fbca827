"""`hogbatch export`: the file that it writes, and what it refuses in one sentence."""

import sys

import onnxruntime
import pytest

from hogbatch.cli import main as cli
from hogbatch.model.file import save_model
from tests.support.exported_models import MATRIX, THREE, model_of


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.safetensors"
    save_model(model_of("softmax", THREE), path)
    return path


def test_the_file_is_next_to_the_model_or_where_it_was_requested(path, capsys):
    assert cli.main(["export", str(path), "--to", "onnx"]) == 0
    assert f"export: {path.with_suffix('.onnx')} (" in capsys.readouterr().out
    metadata = onnxruntime.InferenceSession(path.with_suffix(".onnx")).get_modelmeta()
    assert metadata.producer_name == "hogbatch"
    assert metadata.custom_metadata_map["data"] == "rows.csv"
    other = path.with_name("other.py")
    assert cli.main(["export", str(path), "--to", "numpy", "--output", str(other)]) == 0
    names = {}
    exec(other.read_text(), names)
    assert names["predict"]({"X": MATRIX})["label"].tolist()[0] in THREE.classes


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda content: content[:-9], "truncated, or not a model file"),
        (lambda content: b"x,y\n1,2\n", "truncated, or not a model file"),
        (lambda content: content.replace(b"model-1", b"model-2"), "expected a model of format"),
        (None, "cannot read the model: No such file"),
    ],
)
def test_a_file_that_is_no_model_is_refused_in_one_sentence(change, sentence, path, capsys):
    content = path.read_bytes()
    path.unlink()
    if change is not None:
        path.write_bytes(change(content))
    assert cli.main(["export", str(path), "--to", "onnx"]) == 2
    message = capsys.readouterr().err
    assert f"{path}: " in message and sentence in message and message.count("\n") == 1
    assert not path.with_suffix(".onnx").exists()


def test_a_missing_package_is_named_with_the_command_that_installs_it(path, capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "hogbatch.export.onnx_file", raising=False)
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert cli.main(["export", str(path), "--to", "onnx"]) == 2
    assert "pip install 'hogbatch[export]'" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_named(path, capsys):
    gone = path.with_name("gone") / "model.onnx"
    assert cli.main(["export", str(path), "--to", "onnx", "--output", str(gone)]) == 5
    assert f"{gone}: cannot write the model: No such file" in capsys.readouterr().err
