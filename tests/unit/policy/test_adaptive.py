"""`adaptive`: who trains, and how."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from hogbatch.policy.adaptive import Adaptive
from hogbatch.policy.base import Operation, PolicySettings, WorkerView
from tests.support.property_tests import max_examples

TIMES = ((256, 1e-4), (512, 1.3e-4), (1024, 2e-4), (4096, 6e-4))
FAST_GPU = WorkerView("gpu", 1, 256, 4096, batch_size=512, profile=TIMES, merge=(1e-5, 2e-4))
CPU = WorkerView("cpu", 1, 1, 256, batch_size=256, profile=((256, 6e-4),))


def decide(*workers, **settings):
    return Adaptive(PolicySettings(**settings)).decide(workers)


def slowed(worker, factor):
    return replace(worker, profile=tuple((rows, factor * s) for rows, s in worker.profile))


def test_a_cpu_beside_a_much_faster_gpu_is_parked():
    cpu, gpu = decide(CPU, FAST_GPU)
    assert gpu == Operation(512) and not cpu.trains
    assert cpu.reason.startswith("with it, learning would be") and "slower" in cpu.reason


def test_both_train_where_many_rows_may_be_in_flight():
    cpu, gpu = decide(slowed(CPU, 1 / 3), FAST_GPU, critical_batch=1e6)
    assert cpu.trains and gpu.trains and gpu.merge_every >= 2


def test_a_worker_must_be_predicted_to_gain_a_tenth():
    for factor, trains in ((8, False), (4, True)):  # 7 and 14 %
        slow, fast = decide(slowed(FAST_GPU, factor), FAST_GPU, critical_batch=1e8)
        assert (slow.trains, fast.trains) == (trains, True)


def test_two_equal_gpus_train_together_only_if_that_is_faster():
    assert [each.trains for each in decide(FAST_GPU, FAST_GPU)] == [True, False]
    assert all(each.trains for each in decide(FAST_GPU, FAST_GPU, critical_batch=1e5))


def test_a_second_gpu_trains_if_its_stale_rows_cost_less():
    for cost, trains in ((1.0, False), (0.6, True)):
        both = decide(FAST_GPU, FAST_GPU, critical_batch=768.0, stale_cost=cost)
        assert [each.trains for each in both] == [True, trains]


def test_the_reason_for_parking_contains_the_most_that_a_worker_could_gain():
    slow, _ = decide(slowed(FAST_GPU, 10), FAST_GPU, critical_batch=512.0)
    most = 1.1 * (1 + 1) / (1 + 1.1 * 1) - 1  # both with 512 rows, the critical batch
    assert f"at most {most:.0%} faster" in slow.reason


def test_all_cpu_workers_train_or_are_parked_together():
    for gpu in (FAST_GPU, slowed(FAST_GPU, 50)):
        first, second, _ = decide(CPU, CPU, gpu)
        assert first.trains == second.trains


def test_workers_of_unknown_speed_train():
    unknown = replace(CPU, profile=())
    assert decide(unknown, FAST_GPU) == [Operation(256), Operation(512)]
    assert decide(unknown) == [Operation(256)]


def test_a_worker_that_is_slower_than_it_measured_is_parked():
    gpu = replace(FAST_GPU, seconds_per_row=100 * 1.3e-4 / 512)
    cpu, gpu = decide(CPU, gpu)
    assert cpu.trains and not gpu.trains


def test_a_small_gain_does_not_bring_a_parked_worker_back():
    settings = {"critical_batch": 1e8}
    small = slowed(FAST_GPU, 5)  # adds 12 %
    assert decide(small, FAST_GPU, **settings)[0].trains
    assert not decide(replace(small, trains=False), FAST_GPU, **settings)[0].trains


@st.composite
def workers(draw):
    device = draw(st.sampled_from(["cpu", "gpu"]))
    low = draw(st.integers(1, 300))
    high = low + draw(st.integers(0, 5000))
    seconds = draw(st.floats(1e-6, 1.0))
    known = draw(st.booleans())
    return WorkerView(
        device,
        draw(st.integers(1, 8)),
        low,
        high,
        batch_size=draw(st.integers(low, high)),
        seconds_per_row=draw(st.one_of(st.just(float("nan")), st.floats(1e-9, 10))),
        profile=((low, seconds), (high + 1, 1.5 * seconds)) if known else (),
        merge=(draw(st.floats(0, 0.1)), draw(st.floats(0, 0.1))) if device == "gpu" else (0.0, 0.0),
        trains=draw(st.booleans()),
    )


@max_examples(50)
@given(st.lists(workers(), min_size=1, max_size=6), st.floats(1, 1e6), st.integers(0, 10**6))
def test_someone_always_trains_and_sizes_are_within_the_limits(views, critical, rows):
    operations = decide(*views, critical_batch=critical, rows_between_pauses=(rows // 3, rows))
    assert any(each.trains for each in operations)
    for view, operation in zip(views, operations, strict=True):
        assert view.smallest <= operation.batch_size <= view.largest
        assert operation.weight == 1.0 and operation.merge_every >= 0


@max_examples(50)
@given(st.floats(1e-6, 1e-2), st.floats(0.1, 1.0), st.floats(1, 1e6), st.floats(0.5, 5.0))
def test_smaller_batches_that_a_single_thread_has_measured_change_nothing(
    seconds, part, critical, slower
):
    measured = seconds / 256 * slower
    largest = replace(CPU, profile=((256, seconds),), teams=1, seconds_per_row=measured)
    sizes = (256, 64, 16, 4, 1)
    profile = tuple((rows, seconds * part**step) for step, rows in enumerate(sizes))
    every = replace(largest, profile=profile, smallest=16)
    for others in ((), (FAST_GPU,)):
        decided = [decide(each, *others, critical_batch=critical) for each in (every, largest)]
        assert decided[0] == decided[1]
    first = (Adaptive(PolicySettings()).first_size(worker) for worker in (every, largest))
    assert list(first) == [256, 256]


@pytest.mark.parametrize(("threads", "rows"), [(2, 64), (8, 64), (12, 32), (64, 16)])
def test_many_threads_on_their_own_use_smaller_batches(threads, rows):
    profile = ((64, 1e-3), (32, 0.55e-3), (16, 0.32e-3), (8, 0.25e-3))
    worker = WorkerView("cpu", threads, 1, 64, profile=profile)
    assert decide(worker, critical_batch=1024.0) == [Operation(rows)]
    policy = Adaptive(PolicySettings(critical_batch=1024.0))
    assert policy.first_size(worker) == rows


def test_the_batch_of_a_team_depends_on_the_critical_batch_and_is_kept_if_others_are_as_good():
    profile = ((448, 2.7e-3), (224, 1.6e-3), (112, 1.1e-3))
    team = WorkerView("cpu", 1, 1, 448, profile=profile, members=28)
    for critical, rows in ((2000.0, 448), (400.0, 224)):
        assert decide(team, critical_batch=critical) == [Operation(rows)]
    for kept in (448, 224):  # with this critical batch both learn about as fast
        current = replace(team, batch_size=kept)
        assert decide(current, critical_batch=800.0) == [Operation(kept)]
