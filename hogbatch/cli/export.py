"""`hogbatch export`: a trained model as a file for other programs."""

import sys
from collections.abc import Sequence

from hogbatch.cli.parser import Parser
from hogbatch.machine.printable import encodable, printable


def export(arguments: Sequence[str]) -> int:
    """Write a model as a file for other programs."""
    parser = Parser(export, "MODEL --to onnx|numpy [options]")
    parser.epilog = (
        "The file takes raw rows: it contains the encoding of the columns, and all members of an "
        "ensemble."
    )
    parser.add_argument(
        "model", metavar="MODEL", help="model file (model.safetensors in the run directory)"
    )
    parser.output.add_argument(
        "--to",
        required=True,
        choices=("onnx", "numpy"),
        help="onnx: an ONNX file, for ONNX Runtime and others (pip install 'hogbatch[export]'); "
        "numpy: a Python module that needs NumPy alone",
    )
    parser.output.add_argument(
        "--output",
        metavar="FILE",
        help="file to write (default: next to the model, with the suffix .onnx or .py)",
    )
    options = parser.read(arguments)
    from hogbatch.export import write

    path = write.export(options.model, options.to, options.output)
    size = path.stat().st_size / 1000
    print(encodable(f"export: {printable(str(path))} ({size:,.0f} kB)", sys.stdout))
    return 0
