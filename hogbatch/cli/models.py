"""`hogbatch evaluate` and `predict`: what a trained model says about data."""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hogbatch.cli.parser import Command, Parser
from hogbatch.config.arguments import add_flags
from hogbatch.config.flags import Group
from hogbatch.machine.printable import rounded

if TYPE_CHECKING:
    from hogbatch.model.prediction import DataFile


def evaluate(arguments: Sequence[str]) -> int:
    """Print the loss and metrics of a model on labelled data."""
    parser = _model_parser(evaluate, "bad_lines", "sample_weight")
    parser.output.add_argument("--json", action="store_true", help="all results as one JSON object")
    options = parser.read(arguments)
    from hogbatch.model.prediction import evaluate_file, write_lines

    results = evaluate_file(options.model, _data_file(options))
    lines = [f"{name} {rounded(value)}" for name, value in results.items()]
    if options.json:
        finite = {name: value if math.isfinite(value) else None for name, value in results.items()}
        lines = [json.dumps(finite)]
    write_lines(lines, None)
    return 0


def predict(arguments: Sequence[str]) -> int:
    """Print the predictions of a model, one line per row."""
    parser = _model_parser(predict)
    form = parser.output.add_mutually_exclusive_group()
    form.add_argument("--proba", action="store_true", help="probabilities instead of labels")
    form.add_argument(
        "--top",
        type=int,
        metavar="K",
        help="the K most likely labels of each row; as XMC text for a multi-label model",
    )
    parser.output.add_argument(
        "--approximate",
        action="store_true",
        help="with --top and a model with label vectors: compare only the labels that these and "
        "nearest rows rank highest, which takes less time with many labels (docs/slide.md)",
    )
    parser.output.add_argument(
        "--output",
        metavar="FILE",
        help="CSV file with a header (default: lines on standard output): the label of each row, "
        "and probabilities, of more than 100 labels only with --proba; XMC text for --top of a "
        "multi-label model",
    )
    options = parser.read(arguments)
    if options.approximate and options.top is None:
        parser.error("--approximate needs --top K")
    for given in map(Path, (options.model, options.data)):
        if options.output and given.exists() and given.resolve() == Path(options.output).resolve():
            parser.error(f"--output {options.output} is also an input: give another file")
    from hogbatch.model.prediction import predict_file, write_lines

    lines = predict_file(
        options.model,
        _data_file(options),
        proba=options.proba,
        top=options.top,
        approximate=options.approximate,
        table=options.output is not None,
    )
    write_lines(lines, options.output)
    return 0


def _model_parser(command: Command, *flags: str) -> Parser:
    """A parser with the arguments that `evaluate` and `predict` share, and `flags` of `train`."""
    parser = Parser(command, "MODEL DATA [options]")
    parser.add_argument(
        "model", metavar="MODEL", help="model file (model.safetensors in the run directory)"
    )
    parser.add_argument(
        "data",
        metavar="DATA",
        help="data: file, - for standard input, or name of the bundled sample",
    )
    groups = add_flags(parser, ["header", "data_cache", *flags])
    parser.set_defaults(header="auto", data_cache="auto", bad_lines="0", sample_weight=None)
    groups[Group.DATA].add_argument(
        "--label",
        metavar="NAME,...",
        default="",
        help="label columns of a table (default: as in training)",
    )
    return parser


def _data_file(options: argparse.Namespace) -> "DataFile":
    """The data file of `evaluate` or `predict`. Notes go to stderr, results to stdout."""
    from hogbatch.config.sources import flag_value
    from hogbatch.data.cache import DataCache
    from hogbatch.data.raw import ReadOptions
    from hogbatch.model.prediction import DataFile

    given = ReadOptions(
        label=flag_value("label", options.label),
        bad_lines=flag_value("bad_lines", options.bad_lines),
        header=flag_value("header", options.header),
        weight=options.sample_weight,
    )
    cache = DataCache.of(options.data_cache)
    return DataFile(
        options.data, given, cache, lambda line: print(f"hogbatch: note: {line}", file=sys.stderr)
    )
