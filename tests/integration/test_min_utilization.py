"""`--min-utilization` limits how far the batches of a device shrink to balance the updates."""

import json
from itertools import pairwise

import pytest

PAPER = ("--policy", "paper-adaptive", "--merge-every", 1, "--epochs", 3)


@pytest.mark.parametrize(
    ("device", "direction", "flags"),
    [
        # the GPU has fewer updates, even with its smallest batch
        ("gpu", 1, "--server k80-28cores --workers cpu:4,gpu:0 --hidden 32,16"),
        # the batches of the GPU cannot change, and the CPU is behind for a part of the time
        (
            *("cpu", -1),
            "--server h100-16cores --workers cpu:1,gpu:0 --hidden 256,256 --gpu-batch 512:512",
        ),
    ],
    ids=["gpu", "cpu"],
)
def test_the_updates_of_a_limited_device_and_its_utilization_move(
    main, tmp_path, device, direction, flags
):
    shares, utilizations = [], []
    for least in (0.2, 0.5, 0.9):
        run_dir = tmp_path / f"{least}"
        given = ("--min-utilization", least, "--run-dir", run_dir, "-q")
        done = main("rehearse", "a9a", *flags.split(), *PAPER, *given)
        assert done.returncode == 0, done.stderr
        workers = json.loads((run_dir / "summary.json").read_text())["workers"]
        by_device = {worker["device"]: worker for worker in workers}
        shares.append(by_device["cpu"]["update_share"])
        utilizations.append(by_device[device]["utilization"])
    assert all(direction * (more - less) > 0.03 for less, more in pairwise(shares)), shares
    assert all(more > 1.02 * less for less, more in pairwise(utilizations)), utilizations
    assert utilizations[-1] > 1.15 * utilizations[0], utilizations
