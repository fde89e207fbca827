"""The measured gradient noise, compared with the gradients of single rows."""

import queue
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.kernels.contract import ADAPTIVE, BIAS_CORRECTED, SGD, TOTALS, Hyper
from hogbatch.kernels.dropout import key_of
from hogbatch.kernels.executor import Executor, Randomness, corrected
from hogbatch.kernels.gpu.device import HostDevice
from hogbatch.kernels.reference import NUMPY_KERNELS
from hogbatch.wire.messages import Done
from hogbatch.workers import noise
from hogbatch.workers.compute.thread_state import thread_state
from hogbatch.workers.cpu import CpuEngine
from hogbatch.workers.hashed import HashedLayer
from hogbatch.workers.noise import FEWEST_ROWS, NoiseMeter, ReplicaNoiseMeter, noise_sums
from hogbatch.workers.trainer import Trainer
from tests.support.assignments import assignment, examples, wide
from tests.support.gpu_engine_driver import Rehearsal, lease
from tests.support.pairs import pairs
from tests.unit.workers.conftest import WITHIN_S

ROWS, BATCH, STEPS = 100, 10, 3
KINDS = "dense", "deep", "sparse", "linear", "several", "wide", "hashed", "hashed deep"
HASHED = {"most": 5, "random": 2}  # so few that most outputs are not active
INACTIVE = -1e9  # a bias with which softmax gives an output neither probability nor gradient
NONE = np.zeros(0)


def given(kind, optimizer="sgd", rows=ROWS):
    """An assignment, after some updates."""
    hidden = {"deep": (8, 6), "linear": ()}.get(kind, (8,))
    sparse, several = kind in ("sparse", "linear"), kind == "several"
    made = assignment(
        examples(rows, sparse=sparse, several=several, weighted=kind == "dense"),
        hidden=hidden,
        optimizer=optimizer,
    )
    if kind == "wide":
        made = wide(optimizer=optimizer)
        made = replace(made, welcome=msgspec.structs.replace(made.welcome, lsh=None))
    if kind.startswith("hashed"):
        deep, inputs = kind == "hashed deep", {"sparse": kind == "hashed"}
        made = wide(hidden=(8, 6) if deep else (8,), optimizer=optimizer, **inputs, **HASHED)
        made = replace(
            made, welcome=msgspec.structs.replace(made.welcome, dropout=0.2 if deep else 0.0)
        )
    train(made, STEPS)
    return made


def train(made, steps, rate=0.01):
    model, (loss, optimizer), hyper = made.model, made.kinds, made.hyper(rate)
    arrays = model.params, model.first, model.second
    executor = Executor(NUMPY_KERNELS, np, made.network.layer_views(), *arrays)
    for _ in range(steps):
        model.steps[0] += 1
        exact = corrected(optimizer, hyper, int(model.steps[0]))
        rows = (np.arange(BATCH) + BATCH * model.steps[0]) % made.train.rows
        batch = made.train.inputs, made.train.labels, rows, loss, optimizer, exact
        executor.train_batch(*batch, np.zeros(TOTALS))


def meter_of(made, teams=1):
    thread, find = thread_state(made, 0), None
    if made.welcome.lsh is not None:
        layer = HashedLayer(made, lambda *_: None, 1, pytest.fail)
        layer.start()
        find = layer.finding(thread, made.train.rows)
    found = NoiseMeter(made, thread.model, teams, find)
    found._began = -1e9
    return found


def row_gradients(made, inactive):
    """The gradient of each row [rows, P], in double precision, from an SGD step with that row.

    The step is short, so that no row is bounded (`contract.FURTHEST`). `inactive` are the outputs
    that are not active for each row.
    """
    found, short, (loss, _) = [], Hyper(1e-4, 0.0, 0.0, 0.0, 0.0), made.kinds
    start, views, dropout = (
        made.model.params.astype(np.float64),
        made.network.layer_views(),
        made.dropout,
    )
    random = dropout and Randomness(
        dropout.fraction, key_of(dropout.seed, int(made.model.steps[0]) + 1)
    )
    for row in range(made.train.rows):
        params, bias = start.copy(), views[-1].bias + inactive[row]
        params[bias] = INACTIVE
        executor = Executor(NUMPY_KERNELS, np, views, params, NONE, NONE)
        batch = made.train.inputs, made.train.labels, np.array([row]), loss, SGD, short
        executor.train_batch(*batch, np.zeros(TOTALS), random=random)
        params[bias] = start[bias]
        found.append((start - params) / short.rate)
    return np.array(found)


def mean_squares(made, teams, inactive):
    """What the squares of gradients are divided by the root of [P], each layer factored."""
    _, optimizer = made.kinds
    if optimizer not in ADAPTIVE:
        return np.ones(made.model.params.size)
    steps = int(made.model.steps[0])
    mean = made.model.first / (steps / teams)
    if optimizer in BIAS_CORRECTED:
        mean = made.model.second / (1 - made.hyper(0.0).beta2 ** steps)
    mean = mean.astype(np.float64)
    last = made.network.layer_views()[-1]
    for output in inactive:
        mean[last.bias + output] = 0
        mean[last.weights + output * last.fan_in :][: last.fan_in] = 0
    out = mean.copy()
    for index, view in enumerate(made.network.layer_views()):
        cells = slice(view.weights, view.weights + view.fan_in * view.fan_out)
        bias, shape = slice(view.bias, view.bias + view.fan_out), (view.fan_in, view.fan_out)
        weights = mean[cells].reshape(shape[::-1] if view.output_major else shape)
        joined = np.vstack([weights.T if view.output_major else weights, mean[bias]])
        product = np.outer(joined.sum(1), joined.sum(0)) / max(joined.sum(), 1e-30)
        hashed = view == last and made.welcome.lsh is not None
        if hashed or (index == 0 and made.train.sparse):  # its slots are those of all threads
            product /= teams
        out[bias] = product[-1]
        out[cells] = (product[:-1].T if view.output_major else product[:-1]).ravel()
    return out


def exact_products(made, teams=1, active=None):
    """`active` are the active outputs of each row; None: all outputs."""
    every, rows = np.arange(made.network.outputs), made.train.rows
    active = [every] * rows if active is None else active
    inactive = [np.setdiff1d(every, outputs) for outputs in active]
    squares = mean_squares(made, teams, np.setdiff1d(every, np.concatenate(active)))
    known = squares > 0
    gradients = row_gradients(made, inactive)[:, known] / squares[known] ** 0.25
    return gradients @ gradients.T


@pairs(kind=KINDS, optimizer=("sgd", "momentum", "adagrad", "adam"))
def test_the_products_are_those_of_the_gradients_of_all_rows(kind, optimizer):
    """Finds a wrong layer, bias, weight, slot or scale."""
    compare_with_exact_products(given(kind, optimizer))


@pytest.mark.parametrize("kind", ["dense", "sparse", "hashed"])
def test_slots_of_one_of_several_teams_have_fewer_squares(kind):
    compare_with_exact_products(given(kind, "adagrad"), teams=4)


def compare_with_exact_products(made, teams=1):
    meter, batches = meter_of(made, teams), []
    if made.welcome.lsh is not None:
        find = meter._find
        meter._find = lambda *batch: batches.append(find(*batch)) or batches[-1]
    found = meter.products(np.arange(made.train.rows), BATCH)
    active = [outputs for outputs in batches for _ in range(BATCH)]
    exact = exact_products(made, teams, active or None)
    assert exact.any()
    assert_allclose(found, exact, rtol=2e-3, atol=2e-3 * np.abs(exact).mean())
    if active:
        assert len(active) == made.train.rows
        assert len(np.unique(np.concatenate(active))) < made.network.outputs
        assert len({tuple(outputs) for outputs in batches}) > 1


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_the_mean_over_samples_is_the_exact_noise_scale(kind, monkeypatch):
    """An estimate that is not unbiased is outside its error."""
    made, size, count = given(kind), FEWEST_ROWS, 400
    monkeypatch.setattr(noise, "ROWS", size)
    products = exact_products(made)
    signal, every = products.mean(), np.trace(products) / ROWS
    random, meter, found = np.random.default_rng(0), meter_of(made), []
    for _ in range(count):
        made.orders.even[:] = random.permutation(ROWS)
        found.append(meter.measure(lease(stop=ROWS), 0)[:2] / (size * (size - 1)))
    squares, pairs = np.array(found).T
    assert abs(pairs.mean() - signal) < 3 * pairs.std() / np.sqrt(count)
    assert abs(squares.mean() - every) < 3 * squares.std() / np.sqrt(count)
    assert every / signal > 2, "a case without noise"


@pytest.mark.parametrize(("scale", "factor"), [(1.0, 1.0), (3e4, 2.0)])
def test_the_variances_are_those_of_repeated_measurements(scale, factor):
    """With little noise, that of each row counts; with much, that of each pair, twice."""
    random, rows, found = np.random.default_rng(0), 80, []
    for _ in range(400):
        sizes = np.sqrt(scale / 30) * random.gamma(4.0, 0.25, (rows, 1))
        gradients = np.eye(30)[0] + sizes * random.normal(size=(rows, 30))
        found.append(noise_sums(gradients @ gradients.T, np.inf))
    found = np.array(found)
    cases = np.cov(found[:, 0], found[:, 1])
    of_s, of_both, of_p = found[:, 2:].mean(0)
    assert of_s == pytest.approx(cases[0, 0], rel=0.2)
    assert of_p == pytest.approx(factor * cases[1, 1], rel=0.2)
    assert of_both == pytest.approx(cases[0, 1], abs=0.2 * np.sqrt(cases[0, 0] * cases[1, 1]))


def test_the_noise_scale_grows_while_the_loss_falls():
    """As McCandlish et al. 2018 have measured for all of their problems."""
    made = assignment(examples(200), hidden=(16,))
    flip = np.random.default_rng(0).random(200) < 0.1
    labels = np.where(flip, 1 - made.train.labels.values, made.train.labels.values)
    labels = made.train.labels._replace(values=labels.astype(np.float32))
    made = replace(made, sets={"train": replace(made.train, labels=labels)})
    scales = []
    for steps in (0, 20, 200):
        train(made, steps, rate=0.1)
        squares, products = noise_sums(meter_of(made).products(np.arange(200)), 200)[:2]
        scales.append(squares / products - 1)
    assert scales == sorted(scales) and scales[-1] > 5 * scales[0]


def test_measuring_takes_a_fraction_of_the_time_of_training():
    made = given("dense")
    meter = NoiseMeter(made, thread_state(made, 0).model)
    assert meter.measure(lease(stop=ROWS), 0) is None, "before any training"
    meter._began -= 1.01 * noise.FIRST_SECONDS / noise.LARGEST_COST
    assert meter.measure(lease(stop=ROWS), 0) is not None
    meter._expected = noise.FIRST_SECONDS
    assert meter.measure(lease(stop=ROWS), 0) is None, "it has taken its share"


def test_products_of_rows_of_the_same_batch_are_left_out():
    random, size, count = np.random.default_rng(0), 4, 20
    gradients = random.normal(size=(count, 30)) + 1
    squares, products, *_ = noise_sums(gradients @ gradients.T, np.inf, size)
    batches = gradients.reshape(-1, size, 30)
    sums = batches.sum(1)
    assert products == pytest.approx((sums.sum(0) ** 2).sum() - (sums**2).sum())
    assert squares == pytest.approx((count - size) * (gradients**2).sum())


def test_too_few_rows_are_not_measured():
    made = given("dense")
    meter = meter_of(made)
    assert meter.measure(lease(stop=ROWS), ROWS - FEWEST_ROWS) is not None
    assert meter.measure(lease(stop=ROWS), ROWS - FEWEST_ROWS + 1) is None


def test_what_is_not_finite_is_not_reported():
    made = given("dense", "adagrad")
    made.model.first[:] = np.inf
    assert meter_of(made).measure(lease(stop=ROWS), 0) is None


@pytest.mark.parametrize("threads", [1, 2])
def test_a_worker_reports_what_it_has_measured_and_trains_as_without(threads, monkeypatch):
    """Two threads are a team."""
    found = []
    for cost in (0.0, 1e9):
        monkeypatch.setattr(noise, "LARGEST_COST", cost)
        made, posts, engine = given("dense", "adagrad"), queue.SimpleQueue(), CpuEngine(threads)
        made = replace(made, welcome=msgspec.structs.replace(made.welcome, cpu_teams=1))
        engine.prepare(made, posts.put)
        for number in range(3):
            engine.submit(lease(number=number, stop=ROWS, batch=BATCH))
            done = posts.get(timeout=WITHIN_S)
            assert isinstance(done, Done), done
        engine.close()
        found.append((done.noise, made.model.params.copy()))
    (without, params), (measured, same) = found
    assert without is None and measured[0] > 0 and len(measured) == noise.SUMS
    assert_array_equal(params, same)


@pytest.mark.parametrize(("kind", "optimizer"), [("sparse", "adagrad"), ("deep", "adam")])
def test_a_gpu_worker_measures_what_a_cpu_thread_with_the_same_slots_does(kind, optimizer):
    made = given(kind, optimizer)
    trainer = Trainer(HostDevice(), made)
    of_thread = meter_of(made).measure(lease(stop=ROWS), 0)
    of_replica = ReplicaNoiseMeter(made, trainer.replica)
    of_replica._began = -1e9
    for squares in (made.model.first, made.model.second):
        squares[:] = np.nan  # those of CPU workers
    assert_allclose(of_replica.measure(lease(stop=ROWS), 0), of_thread, rtol=1e-5)


def test_a_gpu_worker_reports_what_it_has_measured_and_trains_as_without(monkeypatch):
    found, half = [], ROWS // 4
    for cost in (0.0, 1e9):
        monkeypatch.setattr(noise, "LARGEST_COST", cost)
        made = given("dense", "adagrad")
        leases = [lease(0, half), lease(half, ROWS, number=2)]
        first, last = Rehearsal(made, leases).hear(2)
        assert last.noise is None, "no rows follow"
        found.append((first.noise, made.model.params.copy()))
    (without, params), (measured, same) = found
    assert without is None and measured[0] > 0 and len(measured) == noise.SUMS
    assert_array_equal(params, same)
