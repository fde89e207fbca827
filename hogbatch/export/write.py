"""Writing an exported model next to its model file, or elsewhere."""

import os
from pathlib import Path

from hogbatch.errors import SaveError, needs_package
from hogbatch.export.numpy_program import program
from hogbatch.export.outputs import graph_of
from hogbatch.machine.files import replace_file
from hogbatch.model.file import load_model
from hogbatch.version import version


def export(model_path: str, form: str, output: str | None = None) -> Path:
    """Write the model as a file of the format "onnx" or "numpy", and return its path.

    Without `output`, it has the name of the model file, with the suffix of the format. UsageError
    for a model that the format cannot express, or a missing package; SaveError if the file cannot
    be written.
    """
    model = load_model(model_path)
    suffix = {"onnx": ".onnx", "numpy": ".py"}[form]
    default = Path(model_path).with_suffix(suffix)
    path = default if output is None else Path(os.path.expanduser(output))
    about = {"hogbatch": version(), **model.about}
    graph = graph_of(model)
    if form == "numpy":
        content = program(graph, about).encode()
    else:
        with needs_package("--to onnx", "onnx", "export"):
            from hogbatch.export.onnx_file import onnx_bytes
        content = onnx_bytes(graph, about)
    try:
        replace_file(path, [content])
    except OSError as error:
        raise SaveError(f"{path}: cannot write the model: {error.strerror or error}") from None
    return path
