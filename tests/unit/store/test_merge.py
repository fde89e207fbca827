from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from hogbatch.config.train import FLAGS
from hogbatch.store.merge import (
    CHUNK,
    MERGE_RULES,
    MERGING_FRACTION,
    average,
    batches_between_merges,
    stale_weight,
)

ROOT = Path(__file__).parents[3]
GPU_PAGE = ROOT / "docs" / "gpu.md"
PAGE = ROOT / "docs" / "command-line.md"
P = 2 * CHUNK + 5  # the last chunk is a short one

milliseconds = st.integers(0, 500).map(lambda count: count / 1000)


def whole(seed):
    """Small whole numbers, whose sums and halves are exact in float32."""
    return np.random.default_rng(seed).integers(-50, 50, P).astype(np.float32)


@pytest.fixture
def shared():
    return whole(1)


@pytest.fixture
def sent():
    return whole(2)


@pytest.mark.parametrize("weight", [1.0, 0.25, 0.0])
@pytest.mark.parametrize(
    ("name", "merged"),
    [
        ("delta", lambda shared, sent, weight: shared + weight * sent),
        ("average", lambda shared, sent, weight: (shared + sent) / 2),
    ],
)
def test_a_rule_merges_what_was_sent_and_leaves_it(name, merged, weight, shared, sent):
    before, copy = shared.copy(), sent.copy()
    MERGE_RULES[name].merge(shared, sent, weight)
    assert np.array_equal(shared, merged(before, copy, weight)) and shared.dtype == np.float32
    assert np.array_equal(sent, copy)


@pytest.mark.parametrize(
    ("rule", "weights"),
    [("off", [1, 1, 1]), ("root", [1, 0.5, 0.1]), ("per-weight", [1, 0.5, 0.1])],
)
def test_staler_changes_weigh_less(rule, weights):
    assert [stale_weight(rule, staleness) for staleness in (0, 3, 99)] == pytest.approx(weights)


def test_average_holds_for_the_largest_numbers():
    shared = np.full(3, 3e38, np.float32)
    average(shared, shared.copy(), 1.0)
    assert np.array_equal(shared, np.full(3, 3e38, np.float32))


def merging_fits(batches, batch, blocking, background):
    """Whether merging after this many batches takes at most its fraction of the time."""
    training = batches * batch * (1 + 1e-9)
    return blocking <= MERGING_FRACTION * training and background <= training


@given(batch=milliseconds.filter(bool), blocking=milliseconds, background=milliseconds)
def test_merges_are_as_frequent_as_their_fraction_of_the_time_allows(batch, blocking, background):
    batches = batches_between_merges(batch, blocking, background)
    assert batches >= 1 and isinstance(batches, int)
    assert merging_fits(batches, batch, blocking, background)
    assert batches == 1 or not merging_fits((batches - 1) * (1 - 1e-6), batch, blocking, background)


@pytest.mark.parametrize("batch", [0.0, np.nan])
def test_a_batch_whose_time_is_not_known_is_merged_by_itself(batch):
    assert batches_between_merges(batch, 0.1, 0.1) == 1


def test_every_rule_is_a_choice_and_documented():
    assert FLAGS["merge"].metavar.split("|") == list(MERGE_RULES)
    choices = r"\|".join(MERGE_RULES)  # in a table
    assert f"`--merge {choices}`" in PAGE.read_text(encoding="utf-8")
    page = GPU_PAGE.read_text(encoding="utf-8")
    assert all(f"`{name}`" in page or f"--merge {name}`" in page for name in MERGE_RULES)
