import pytest

from hogbatch.policy.limits import largest_cpu_batch, largest_gpu_batch

LARGE = 580_000  # rows


@pytest.mark.parametrize(
    ("rows", "members", "batch"),
    [
        *((262_143, 1, 64), (262_144, 1, 128), (39_800, 2, 128), (LARGE, 8, 128)),
        *((LARGE, 16, 256), (LARGE, 32, 512), (LARGE, 256, 512)),
        *((100, 16, 8), (1_600, 16, 50), (6_400, 16, 200), (12_800, 32, 400)),
    ],
)
def test_the_largest_batch_of_a_team_follows_the_rows(rows, members, batch):
    assert largest_cpu_batch(rows, members) == batch


@pytest.mark.parametrize(("rows", "batch"), [(100, 8), (9_600, 400), (12_920, 512), (LARGE, 512)])
def test_the_largest_batch_of_a_gpu_leaves_many_in_an_epoch(rows, batch):
    assert largest_gpu_batch(rows) == batch
