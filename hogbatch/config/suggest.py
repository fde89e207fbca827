"""The setting that an unknown name means."""

import difflib
from collections.abc import Collection
from typing import Final

ALIKE: Final = 0.85  # similarity from which a name is a misspelt setting

OTHER_NAMES: Final[dict[str, str]] = {  # of settings, in other libraries
    "categorical": "cat-features categorical-columns categorical-features",
    "drop": "drop-columns ignore-columns",
    "epochs": "iterations max-epochs max-iter n-epochs n-iter num-epochs",
    "group": "group-column group-id groups",
    "hidden": "hidden-dim hidden-dims hidden-layer-sizes hidden-layers hidden-sizes hidden-units",
    "activation": "activation-function nonlinearity",
    "l2": "l2-penalty l2-regularization reg-lambda regularization weight-decay",
    "label": "label-column target target-column",
    "log": "logger loggers report-to tracker trackers",
    "loss": "criterion loss-fn loss-function objective",
    "lr": "eta eta0 learning-rate learning-rate-init step-size",
    "max-seconds": "max-time time-budget time-limit timeout",
    "metric": "eval-metric metrics scoring",
    "optimizer": "momentum optim solver",
    "sample-weight": "weight weight-column weights",
    "patience": "early-stopping early-stopping-rounds n-iter-no-change",
    "quiet": "silent verbose verbosity",
    "run-dir": "checkpoint-dir log-dir model-dir output-dir save-dir",
    "scale": "normalize scaler scaling standardize",
    "seed": "random-seed random-state",
    "test": "test-data test-file",
    "test-fraction": "test-size test-split",
    "time": "date-column time-column times timestamp",
    "validation": "eval-set valid valid-data validation-data",
    "validation-fraction": "val-fraction val-split validation-split",
    "workers": "device devices n-jobs n-threads nthread num-threads num-workers threads",
    "cpu-batch": "batch batch-size minibatch-size",
}
MEANINGS: Final = {other: name for name, others in OTHER_NAMES.items() for other in others.split()}


def meant(unknown: str, known: Collection[str]) -> str | None:
    """The one of the `known` settings that `unknown` means or misspells; None: not known.

    All are written as flags without the leading dashes.
    """
    meaning = MEANINGS.get(unknown.lower())
    if meaning in known:
        return meaning
    return next(iter(difflib.get_close_matches(unknown, known, n=1, cutoff=ALIKE)), None)
