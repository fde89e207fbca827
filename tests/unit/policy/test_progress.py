"""The model of how fast workers learn together."""

from dataclasses import replace

import pytest

from hogbatch.policy.base import Operation, PolicySettings, WorkerView
from hogbatch.policy.progress import (
    Load,
    batch_seconds,
    best_interval,
    best_operation,
    load,
    with_measured_speeds,
)

CPU = WorkerView("cpu", teams=4, smallest=1, largest=64, profile=((64, 0.001),))
GPU = WorkerView(
    "gpu",
    teams=1,
    smallest=64,
    largest=512,
    profile=((64, 1e-4), (128, 1.1e-4), (256, 1.4e-4), (512, 2e-4), (1024, 4e-4)),
    merge=(1e-4, 5e-4),
)

NONE, PAUSES = (0, 0), (10_000, 10_000)


def rate(load, critical=1e9, pauses=NONE):
    return load.rate(PolicySettings(critical_batch=critical, rows_between_pauses=pauses))


def measured_seconds(worker, pauses=NONE):
    """The measured seconds of a batch over those that were predicted."""
    (view,) = with_measured_speeds([worker], pauses)
    return view.profile[0][1] / worker.profile[0][1]


@pytest.mark.parametrize(
    ("rows", "seconds"),
    [(32, 1.0), (64, 1.0), (96, 1.5), (128, 2.0), (256, 4.0)],
)
def test_batch_times_lie_between_the_measured_ones(rows, seconds):
    assert batch_seconds(((128, 2.0), (64, 1.0)), rows) == pytest.approx(seconds)


def test_a_batch_with_the_critical_number_of_rows_learns_half_as_fast_per_row():
    assert rate(Load(1000.0, 512.0), critical=512.0) == pytest.approx(500.0)
    assert rate(Load(1000.0, 128.0), critical=512.0) == pytest.approx(800.0)
    few = [rate(Load(1000.0, rows), critical=512.0) for rows in (1.0, 32.0, 64.0)]
    assert few == pytest.approx([1000.0 * 8 / 9] * 3)


def test_workers_are_as_fast_as_measured_and_a_merge_delays_a_gpu():
    every_team = Load(pytest.approx(4 * 64_000), 4 * 64)
    assert load(CPU, Operation(64)) == every_team
    assert load(GPU, Operation(512)).speed == pytest.approx(512 / 2e-4)
    expected = 2 * 512 / (5e-4 + 1e-4)  # the background is longer than two batches
    assert load(GPU, Operation(512, merge_every=2)).speed == pytest.approx(expected)
    expected = 4 * 512 / (4 * 2e-4 + 1e-4)
    assert load(GPU, Operation(512, merge_every=4)).speed == pytest.approx(expected)


def test_rows_of_a_gpu_are_in_flight_from_their_batch_to_the_end_of_their_merge():
    merging = load(GPU, Operation(512, merge_every=4))
    ages = [9e-4 - start + 5e-4 for start in (0.0, 2e-4, 4e-4, 6e-4)]  # of each batch, when merged
    assert merging.in_flight == pytest.approx(512 / 9e-4 * sum(ages))


def test_a_gpu_has_not_seen_the_rows_of_its_batch_and_those_that_another_has_in_flight():
    for every in (0, 2, 4, 64):
        assert load(GPU, Operation(512, every)).unseen == pytest.approx(512)
    one = load(GPU, Operation(512, merge_every=2))
    assert (one + one).unseen == pytest.approx(512 + one.in_flight)


def test_rows_in_flight_cost_as_often_as_other_workers_have_not_seen_them():
    gpu, cpu = load(GPU, Operation(512, merge_every=2)), load(CPU, Operation(64))
    share = gpu.speed / (gpu.speed + cpu.speed)
    expected = share * (512 + cpu.in_flight) + (1 - share) * (gpu.in_flight + cpu.in_flight)
    assert (gpu + cpu).unseen == pytest.approx(expected)


def test_rows_that_a_gpu_has_not_seen_cost_less_if_its_changes_are_damped():
    gpu, cpu = load(GPU, Operation(512, 2), 0.6), load(CPU, Operation(64))
    assert gpu.unseen == pytest.approx(512)
    assert (gpu + gpu).unseen == pytest.approx(512 + 0.6 * gpu.in_flight)
    share = gpu.speed / (gpu.speed + cpu.speed)  # the changes of a CPU are not damped
    expected = share * (512 + 0.6 * cpu.in_flight) + (1 - share) * (gpu.in_flight + cpu.in_flight)
    assert (gpu + cpu).unseen == pytest.approx(expected)
    assert (gpu + cpu - cpu).unseen == pytest.approx(gpu.unseen)


def test_pauses_cost_a_gpu_a_merge_and_a_pull():
    epoch, pause = 10_000 * 2e-4 / 512, 1e-4 + 2 * 5e-4
    few = 8 / 9  # of its rows per second, since few rows are in flight
    assert rate(load(GPU, Operation(512)), pauses=PAUSES) == pytest.approx(
        few * 10_000 / (epoch + pause)
    )
    cpu = load(CPU, Operation(64))
    assert rate(cpu, pauses=PAUSES) == rate(cpu)


def test_pauses_are_rarer_where_they_cost_more():
    epoch, pause = 100_000 * 2e-4 / 512, 1e-4 + 2 * 5e-4
    seconds = best_interval(pause, epoch)  # of about 15,000 rows
    alone = load(GPU, Operation(512))
    assert alone.pauses_per_second((1_000, 100_000)) == pytest.approx(1 / seconds + 1 / epoch)
    assert best_interval(0.5, 4.0) == 2.0


def test_two_gpus_pause_twice_as_often_for_each_row_of_theirs_and_wait_for_each_other():
    one = load(GPU, Operation(512, merge_every=4))
    both = one + one
    assert one.pause == both.pause == pytest.approx(1e-4 + 2 * 5e-4 + 9e-4 / 2)
    assert both.pauses_per_second(PAUSES) == pytest.approx(2 * one.pauses_per_second(PAUSES))
    seconds = 10_000 / both.speed + both.pause  # of an epoch
    critical = 512 + one.in_flight  # so that training needs twice the rows
    assert rate(both, critical, PAUSES) == pytest.approx(10_000 / seconds / 2)


@pytest.mark.parametrize("seconds", [0.002, 0.0001])
def test_a_worker_that_is_slower_or_faster_in_training_than_measured_has_that_speed(seconds):
    worker = replace(CPU, batch_size=64, seconds_per_row=seconds / (4 * 64))
    assert measured_seconds(worker) == pytest.approx(seconds / 0.001)


def test_the_measured_speed_of_a_gpu_contains_its_merges_and_may_contain_pauses():
    now = load(GPU, Operation(512, merge_every=2))
    unpaused = replace(GPU, batch_size=512, merge_every=2, seconds_per_row=1 / now.speed)
    pauses = now.pauses_per_second(PAUSES) * (1e-4 + 2 * 5e-4)  # does not wait for another worker
    paused = replace(unpaused, seconds_per_row=(1 + pauses) / now.speed)
    assert measured_seconds(unpaused, PAUSES) == 1
    assert measured_seconds(paused, PAUSES) == pytest.approx(1)
    half = replace(paused, seconds_per_row=2 * paused.seconds_per_row)
    assert measured_seconds(half, PAUSES) == pytest.approx(2)
    twice = replace(unpaused, seconds_per_row=unpaused.seconds_per_row / 2)
    assert measured_seconds(twice, PAUSES) == pytest.approx(1 / 2)


def test_a_parked_worker_causes_no_pauses():
    now = load(GPU, Operation(512, merge_every=2))
    pauses = now.pauses_per_second(PAUSES) * (1e-4 + 2 * 5e-4)
    worker = replace(
        GPU, batch_size=512, merge_every=2, seconds_per_row=(1 + 2 * pauses) / now.speed
    )
    for trains, factor in ((True, 1.0), (False, (1 + 2 * pauses) / (1 + pauses))):
        views = with_measured_speeds([worker, replace(worker, trains=trains)], PAUSES)
        assert views[0].profile[0][1] / GPU.profile[0][1] == pytest.approx(factor)


def test_a_gpu_that_has_not_trained_is_as_much_slower_than_predicted_as_another_one():
    slow = replace(GPU, batch_size=512, seconds_per_row=3 / load(GPU, Operation(512)).speed)
    views = with_measured_speeds([slow, GPU, CPU], NONE)
    expected = [3 * seconds for _, seconds in GPU.profile]
    for view in views[:2]:
        assert [seconds for _, seconds in view.profile] == pytest.approx(expected)
    assert views[2] == CPU


def test_without_a_profile_the_speed_of_training_is_used():
    unknown = replace(CPU, profile=(), batch_size=64)
    known = replace(unknown, seconds_per_row=0.001 / (4 * 64))
    views = with_measured_speeds([unknown, known], NONE)
    assert [view.profile for view in views] == [(), ((64, pytest.approx(0.001)),)]


@pytest.mark.parametrize(("critical", "rows"), [(50.0, 128), (500.0, 512), (1e9, 512)])
def test_a_gpu_alone_takes_the_batch_that_learns_fastest(critical, rows):
    chosen = best_operation(GPU, Load(), PolicySettings(critical_batch=critical))
    assert chosen == Operation(rows)


def test_a_gpu_beside_others_merges_more_often_if_fewer_rows_may_be_in_flight():
    every = [
        best_operation(GPU, Load(1e5, 64.0), PolicySettings(critical_batch=critical)).merge_every
        for critical in (100.0, 1_000.0, 100_000.0)
    ]
    assert every[0] >= 2 and every == sorted(every) and every[0] < every[-1]


def test_the_rounding_error_of_a_removed_gpu_is_no_pause():
    assert Load(speed=1e5, lost=-1e-12).pauses_per_second((1_000, 100_000)) == 0
