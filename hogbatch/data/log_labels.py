"""Labels that are trained on as logarithms (`--label-transform`)."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.losses import encodings_for
from hogbatch.data.encode import Encoding, amounts, encoding_of_numbers, number_labels
from hogbatch.data.order import RowNumbers
from hogbatch.data.raw import RawSet
from hogbatch.errors import DataError, UsageError

MIN_SKEWNESS: Final = 3.0  # of numbers with a heavy tail


def encoding(
    setting: str,
    loss: str,
    plain: Encoding,
    raw: RawSet,
    others: Iterable[RawSet],
    training: RowNumbers | None,
) -> Encoding | None:
    """The encoding as logarithms of labels whose encoding is `plain`; None: there is none.

    With the `setting` "auto", there is one if it may be better. `training` are the training rows of
    `raw`; None: all. UsageError or DataError with "log1p" for labels or a loss that it does not
    suit, in `raw` or in `others`.
    """
    suits = plain.kind == "real" and (loss == "auto" or "logs" in encodings_for(loss))
    if setting == "log1p" and not suits:
        got = "" if plain.kind == "real" else f" and labels that are {plain.kind}"
        raise UsageError(
            "--label-transform log1p needs labels that are numbers, and --loss squared; got --loss "
            f"{loss}{got}"
        )
    if setting == "none" or not suits or (setting == "auto" and plain.targets > 1):
        return None
    labels_of = number_labels if setting == "auto" else amounts
    every = [labels_of(each, "log1p needs") for each in (raw, *others)]
    own = every[0] if training is None else every[0][training]
    if setting == "auto":
        negative = any((each < 0).any() for each in every)
        if negative or not have_heavy_tail(own):
            return None
    if not own.any(axis=0).all():
        raise DataError(f"{raw.source}: log1p needs a label above 0; every label is 0")
    return encoding_of_logs(own)


def encoding_of_logs(labels: NDArray[Any]) -> Encoding:
    """The encoding as logarithms, from the `labels` of the training rows, [N] or [N, T]."""
    logs, largest = np.log1p(labels), labels.max(axis=0)
    deviation = logs.std(axis=0)
    encoding = encoding_of_numbers("logs", logs.mean(axis=0), np.where(deviation, deviation, 1.0))
    return replace(encoding, largest=tuple(largest.tolist()) if largest.ndim else float(largest))


def have_heavy_tail(labels: NDArray[Any]) -> bool:
    """Whether a few large numbers dominate the squared error of labels [N] of at least 0.

    That is if their skewness is at least MIN_SKEWNESS, but not that of their logarithms.
    """
    return bool(_skewness(labels) >= MIN_SKEWNESS > _skewness(np.log1p(labels)))


def _skewness(numbers: NDArray[Any]) -> float:
    centred = numbers - numbers.mean()
    spread = centred.std()
    return float((centred**3).mean() / spread**3) if spread else 0.0
