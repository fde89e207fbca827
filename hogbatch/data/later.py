"""Reading files of later rows in the same way as the training rows."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from hogbatch.data import csr
from hogbatch.data.cache import DataCache
from hogbatch.data.facts import Fitted
from hogbatch.data.pieces import is_large
from hogbatch.data.raw import Columns, RawSet, ReadOptions
from hogbatch.data.readers import large_file, pieces_of, read_as, read_together
from hogbatch.data.samples import SAMPLES
from hogbatch.data.source import Source, is_standard_input
from hogbatch.errors import DataError
from hogbatch.machine.printable import plural, printable


def rows_like(
    fitted: Fitted, read: Callable[[ReadOptions], RawSet], options: ReadOptions
) -> RawSet:
    """Call `read` with the `options` of training rows, changed so that rows are read like those.

    The result is checked and not yet scaled. DataError if there are no labels.
    """
    if fitted.columns.position is not None:  # then they contain the label column
        options = replace(options, label=())
    raw = _match_features(read(fitted.options(options)), fitted.features)
    expect_labels(raw, fitted.columns)
    return raw


def rows_as(path: str | Path, options: ReadOptions, cache: DataCache | None) -> RawSet:
    """Read rows for a model of `options.features` inputs: checked and not yet scaled.

    The columns of a CSV file are matched to `options.columns`, and those of a table to its
    encoding. The name of a sample means its test file.
    """
    raw = read_as(file_of(path, "test"), options, cache)
    assert options.features is not None
    return _match_features(raw, options.features)


def pieces_as(path: str | Path, options: ReadOptions, cache: DataCache | None) -> Iterator[RawSet]:
    """Read rows without labels as `rows_as` does; those of a large text file in several pieces."""
    assert options.features is not None
    large = None
    if not is_standard_input(path) and is_large(source := Source(file_of(path, "test"))):
        large = large_file(source.path, options)
    if large is None or (not large.table and options.index_base is None):
        yield rows_as(path, options, cache)
        return
    for piece in pieces_of(large, options):
        yield _match_features(read_together([piece], options), options.features)


def is_sample(path: str | Path) -> bool:
    return str(path) in SAMPLES and not os.path.exists(path)


def file_of(path: str | Path, part: str) -> Path:
    """The file of DATA; `part` selects "train" or "test" of a sample."""
    if is_sample(path):
        return SAMPLES[str(path)][part]
    if not is_standard_input(path) and not os.path.exists(path):
        raise DataError(
            f"no such file: {printable(str(path))}; bundled samples are {', '.join(SAMPLES)}"
        )
    return Path(path)


def _match_features(raw: RawSet, features: int) -> RawSet:
    """Remove values of unknown features from sparse rows.

    DataError if dense rows do not have `features` features.

    Sparse rows may have fewer features than the model, because features that are not stored are 0.
    """
    if not len(raw.inputs.indptr):
        if raw.features == features:
            return raw
        relation = "more" if raw.features > features else "fewer"
        raise DataError(
            f"{raw.locate(0)}: {relation} features than the training data: "
            f"{raw.features} here, {features} there"
        )
    unknown = raw.inputs.indices[raw.inputs.indices >= features]
    if not len(unknown):
        return raw
    distinct = len(np.unique(unknown))
    note = (
        f"{plural(len(unknown), 'value')} of {plural(distinct, 'feature')} that the training data "
        f"lack are ignored; the training data have {plural(features, 'feature')} (train with "
        "--features N for more)"
    )
    inputs = csr.below(raw.inputs, features)
    return replace(raw, inputs=inputs, features=features, notes=(*raw.notes, note))


def expect_labels(raw: RawSet, columns: Columns) -> None:
    """DataError if a file lacks the named label column of the training file."""
    if columns.label is not None and raw.labels is None and raw.label_lists is None:
        raise DataError(
            f"{raw.source} has no labels: expected the label column {columns.label!r} of the "
            "training data; if it has a different name, give it with --label"
        )
