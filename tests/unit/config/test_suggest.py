import pytest

from hogbatch.config.flags import dashed
from hogbatch.config.suggest import OTHER_NAMES, meant
from hogbatch.config.train import FLAGS

KEYS = [dashed(name) for name in FLAGS]


@pytest.mark.parametrize(
    ("unknown", "setting"),
    [
        ("learning-rate", "lr"),
        ("batch-size", "cpu-batch"),
        ("weight-decay", "l2"),
        ("random-state", "seed"),
        ("n-jobs", "workers"),
        ("Max-Iter", "epochs"),
        ("hiden", "hidden"),
        ("lr-scalling", "lr-scaling"),
        ("epoch", "epochs"),
        ("eval-metric", "metric"),
        ("class-prior", None),
        ("gradient-clipping", None),
        ("min-seconds", None),
        ("", None),
    ],
)
def test_a_setting_is_suggested_by_meaning_or_as_a_misspelling(unknown, setting):
    assert meant(unknown, KEYS) == setting


def test_every_meaning_is_a_setting_and_no_setting_has_another_meaning():
    assert set(OTHER_NAMES) <= set(KEYS)
    assert not {name for names in OTHER_NAMES.values() for name in names.split()} & set(KEYS)
    assert meant("learning-rate", ["output"]) is None
