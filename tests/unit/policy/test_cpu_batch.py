import pytest

from hogbatch.policy.cpu_batch import (
    LARGEST_BATCH,
    LARGEST_USEFUL_BATCH,
    ROWS_PER_MEMBER,
    SMALLEST_BATCH,
    largest_batch,
    largest_cpu_batch,
)

LARGE = 580_000  # rows


@pytest.mark.parametrize(
    ("rows", "batch"),
    [(1, 8), (96, 8), (300, 9), (1_280, 40), (6_400, 64), (19_200, 64), (LARGE, 64)],
)
def test_the_largest_batch_of_a_thread_follows_the_rows(rows, batch):
    assert largest_cpu_batch(rows) == batch


def test_a_team_has_the_batch_of_a_thread_until_each_member_has_enough_rows():
    sizes = {members: largest_cpu_batch(LARGE, members) for members in (1, 2, 4, 8, 16, 32, 256)}
    assert sizes[1] == sizes[2] == sizes[4] == LARGEST_BATCH
    assert sizes[8] == 8 * ROWS_PER_MEMBER and sizes[16] == 16 * ROWS_PER_MEMBER
    assert sizes[32] == sizes[256] == LARGEST_USEFUL_BATCH


@pytest.mark.parametrize(
    ("rows", "batch"), [(100, SMALLEST_BATCH), (3_200, 64), (6_400, 100), (12_800, 200)]
)
def test_a_team_on_a_small_set_has_small_batches_too(rows, batch):
    assert largest_cpu_batch(rows, members=16) == batch


@pytest.mark.parametrize(("rows", "batch"), [(100, 8), (12_800, 200), (39_680, 512), (LARGE, 512)])
def test_the_largest_useful_batch_leaves_many_in_an_epoch(rows, batch):
    assert largest_batch(rows) == batch
