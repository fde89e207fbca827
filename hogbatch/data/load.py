"""A path or the name of a bundled sample becomes training and test rows, ready for kernels."""

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hogbatch.data import csr
from hogbatch.data.batch import Examples, Inputs
from hogbatch.data.cache import DataCache
from hogbatch.data.encode import Encoding, encode, infer_encoding
from hogbatch.data.order import split, take
from hogbatch.data.raw import DEFAULTS, Options, RawSet
from hogbatch.data.readers import read_as
from hogbatch.data.samples import SAMPLES
from hogbatch.data.source import is_standard_input
from hogbatch.data.standardize import Standardizer, fit
from hogbatch.errors import DataError, UsageError
from hogbatch.printable import printable


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a run trains and tests on, and what is needed to read later files alike."""

    train: Examples
    test: Examples | None
    encoding: Encoding
    standardizer: Standardizer | None
    index_base: int | None
    fingerprint: str  # 32 hex digits; the same for the same rows, labels and encoding
    skipped: int = 0  # lines of the files that are not among the rows,
    notes: tuple[str, ...] = ()  # and what to say of them, a line each


def load(
    path: str | Path,
    *,
    test: str | Path | None = None,
    test_fraction: float = 0.2,
    options: Options = DEFAULTS,
    loss: str = "auto",
    standardize: bool = False,
    cache: DataCache | None = None,
) -> Loaded:
    """Read DATA (a path or a sample's name) and its test set, both as `options` say.

    The test set is `test` if given, else the sample's own, else `test_fraction` of the rows (see
    `order.split`; none where that is less than a row). Raises DataError for a file that is not as
    it should be, and UsageError for a fraction outside [0, 1).
    """
    if not 0 <= test_fraction < 1:
        raise UsageError(f"test fraction must be at least 0 and below 1; got {test_fraction}")
    if test is not None and is_standard_input(path) and is_standard_input(test):
        raise UsageError("DATA and --test are both standard input, which can be read once")
    if test is None and _is_sample(path):
        test = path
    raw = read_as(_file(path, "train"), options, cache)
    if not raw.features:
        raise DataError(f"{raw.source}: not one row has a feature")
    encoding = infer_encoding(raw, loss)
    train = Examples(raw.inputs, encode(raw, encoding), raw.features)
    read = [raw]
    if test is None:
        train, held_back = _split(train, test_fraction)
    else:
        alike = replace(options, index_base=raw.index_base, features=raw.features)
        read.append(other := _rows_as(test, alike, cache))
        inputs = _in_form(other.inputs, raw.features, sparse=train.sparse)
        held_back = Examples(inputs, encode(other, encoding), raw.features)
    standardizer = fit(train.inputs, train.features) if standardize else None
    if standardizer:
        train = replace(train, inputs=standardizer.apply(train.inputs))
        held_back = held_back and replace(held_back, inputs=standardizer.apply(held_back.inputs))
    return Loaded(
        train,
        held_back,
        encoding,
        standardizer,
        raw.index_base,
        _fingerprint(train, held_back, encoding),
        skipped=sum(each.skipped.total for each in read),
        notes=tuple(note for each in read for note in each.skipped.notes(each.source, each.rows)),
    )


def inputs_for(
    path: str | Path,
    features: int,
    *,
    index_base: int | None = None,
    standardizer: Standardizer | None = None,
    label: str | None = None,
    cache: DataCache | None = None,
) -> RawSet:
    """Read rows for a model of `features` inputs: checked, widened and standardised.

    Labels come along as the file has them, or not at all: `predict` ignores them, `evaluate` puts
    the result through `encode`. The name of a sample stands for its test file.
    """
    raw = _rows_as(path, Options(label, index_base, features), cache)
    inputs = raw.inputs if standardizer is None else standardizer.apply(raw.inputs)
    return replace(raw, inputs=inputs, features=features)


def _rows_as(path: str | Path, options: Options, cache: DataCache | None) -> RawSet:
    """Read rows for a model of `options.features` inputs, and check that it takes them."""
    raw = read_as(_file(path, "test"), options, cache)
    assert options.features is not None
    _check_width(raw, options.features)
    return raw


def _is_sample(path: str | Path) -> bool:
    return str(path) in SAMPLES and not os.path.exists(path)


def _file(path: str | Path, part: str) -> Path:
    """Find the file behind DATA; `part` is "train" or "test" of a sample."""
    if _is_sample(path):
        sample = SAMPLES[str(path)]
        return sample.train if part == "train" else sample.test
    if not is_standard_input(path) and not os.path.exists(path):
        raise DataError(
            f"no such file: {printable(str(path))}; bundled samples are {', '.join(SAMPLES)}"
        )
    return Path(path)


def _check_width(raw: RawSet, features: int) -> None:
    """Refuse features the model does not know, and dense rows that lack some.

    Sparse rows may use fewer features than there are: those not stored are 0 in any case.
    """
    if len(raw.inputs.indptr):
        beyond = np.flatnonzero(raw.inputs.indices >= features)
        row = csr.row_of(raw.inputs.indptr, beyond[0]) if len(beyond) else None
    else:
        row = 0 if raw.features != features else None
    if row is not None:
        relation = "more" if raw.features > features else "fewer"
        raise DataError(
            f"{raw.locate(row)}: {relation} features than the training data: "
            f"{raw.features} here, {features} there"
        )


def _in_form(inputs: Inputs, features: int, *, sparse: bool) -> Inputs:
    """Bring a test set into the form of its training set."""
    if sparse == bool(len(inputs.indptr)):
        return inputs
    return csr.to_csr(inputs) if sparse else csr.to_dense(inputs, features)


def _split(examples: Examples, test_fraction: float) -> tuple[Examples, Examples | None]:
    training, testing = split(examples.rows, test_fraction)
    if not len(testing):
        return examples, None
    return take(examples, training), take(examples, testing)


def _fingerprint(train: Examples, test: Examples | None, encoding: Encoding) -> str:
    digest = hashlib.blake2b(repr((train.features, encoding)).encode(), digest_size=16)
    for examples in (train, test) if test else (train,):
        for array in (*examples.inputs, *examples.labels):
            digest.update(repr((array.dtype.str, array.shape)).encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
