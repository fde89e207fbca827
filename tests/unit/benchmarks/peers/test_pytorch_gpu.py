"""On the CPU: what is left untested so is the capture of a step as a CUDA graph."""

import subprocess
import time
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array

from benchmarks.common.job import WITHIN_S
from benchmarks.peers import pytorch_gpu
from benchmarks.peers.contract import Problem, Rows, Stopwatch, reached
from benchmarks.peers.pytorch_gpu import BATCHES, PEER, objection


@pytest.fixture
def torch():
    """With one thread: on so small a network two of them mostly wait for each other."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield torch
    torch.set_num_threads(threads)


def ticks():
    """A clock on which a second passes whenever it is read."""
    return count().__next__


def setting(**given):
    return {"device": "cpu", "optimizer": "adam", "batch": 64, "lr": 0.02, **given}


@pytest.mark.parametrize("given", [{"optimizer": "sgd", "lr": 0.5}, {"activation": "sigmoid"}])
def test_it_learns_and_stops_at_the_target(given, signs, torch):
    watch = Stopwatch(target=0.3, limit_s=WITHIN_S)
    PEER.train(replace(signs, hidden=(16,)), setting(**given), 0, watch)
    assert watch.curve[0][0] == 0.0 and watch.curve[0][1] > 0.5
    assert reached(watch.curve, 0.3) == watch.curve[-1][0] > 0
    assert watch.rows % 64 == 0 < watch.rows


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_what_was_learnt_in_warming_up_is_forgotten(optimizer, signs, torch):
    step = pytorch_gpu.GpuStep(signs, setting(optimizer=optimizer), 0)
    before = [p.detach().clone() for p in step._network.parameters()]
    step.capture()
    after = list(step._network.parameters())
    assert all(bool((a == b).all()) for a, b in zip(before, after, strict=True))
    states = [value for state in step._optimizer.state.values() for value in state.values()]
    assert not any(bool(value.any()) for value in states if value is not None)


@pytest.mark.parametrize(
    ("loss", "y"),
    [
        ("softmax", np.array([0, 2, 1, 2] * 32, np.float32)),
        ("multilabel", csr_array(np.tile(np.eye(3, dtype=np.float32), (43, 1))[:128])),
    ],
)
def test_classes_and_many_labels_are_taken(loss, y, torch):
    x = np.random.default_rng(0).standard_normal((128, 5)).astype(np.float32)
    rows, watch = Rows(x, y), Stopwatch(-1.0, limit_s=50, clock=ticks())
    PEER.train(Problem(loss, (8,), 3, rows, rows), setting(batch=32), 0, watch)
    assert watch.curve[-1][1] < watch.curve[0][1]


def test_label_lists_are_ranked_with_equal_targets(torch):
    y = csr_array(np.tile(np.array([[1, 1, 0], [0, 0, 1]], np.float32), (64, 1)))
    x = np.tile(np.eye(2, dtype=np.float32), (64, 1))
    rows, watch = Rows(x, y), Stopwatch(0.0, limit_s=WITHIN_S)
    problem = Problem("multilabel-softmax", (8,), 3, rows, rows)
    PEER.train(problem, setting(batch=32, start=0.1), 0, watch)
    assert watch.curve[-1][1] == 0.0  # the first label of every row is one of its own
    step = pytorch_gpu.GpuStep(problem, setting(start=0.1), 0)
    assert step._y[:2].tolist() == [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    assert float(step._network[0].weight.detach().std()) == pytest.approx(0.1, rel=0.7)


def test_every_epoch_has_full_batches_of_different_rows(signs, torch):
    step = pytorch_gpu.GpuStep(signs, setting(batch=200), 0)
    found = pytorch_gpu.batches(step, 0)
    first, second, third = (next(found).tolist() for _ in range(3))
    assert len(set(first + second)) == 400
    assert len(third) == 200 and set(third) & set(first + second)


def test_the_first_order_of_rows_is_made_before_the_clock_starts(signs, torch, monkeypatch):
    events, made = [], pytorch_gpu.batches

    def noted(step, seed):
        for rows in made(step, seed):
            events.append(rows.tolist())
            yield rows

    class Watch(Stopwatch):
        def start(self, measure):
            events.append("start")
            super().start(measure)

    monkeypatch.setattr(pytorch_gpu, "batches", noted)
    watch = Watch(target=-1.0, limit_s=10, clock=ticks())
    PEER.train(signs, setting(batch=200), 0, watch)
    assert events.index("start") == 1
    batches = [rows for rows in events if rows != "start"]
    assert len(set(batches[0] + batches[1])) == 400  # the first batch is used, and only once
    assert watch.rows in (200 * len(batches), 200 * (len(batches) - 1))


class Events:
    """In place of torch.cuda.Event; notes what is recorded and waited for."""

    def __init__(self):
        self.log = []

    def __call__(self):
        number = len([each for each in self.log if each[0] == "record"])
        return SimpleNamespace(
            record=lambda: self.log.append(("record", number)),
            synchronize=lambda: self.log.append(("wait", number)),
        )


def test_the_device_is_never_idle_while_python_waits_for_it(signs, torch, monkeypatch):
    step, events = pytorch_gpu.GpuStep(signs, setting(), 0), Events()
    monkeypatch.setattr(torch.cuda, "Event", events)
    step.limit_lead()
    assert events.log == []  # on the CPU
    step._on_gpu = True
    for _ in range(3):
        step.limit_lead()
    assert events.log == [
        *(("record", 0), ("wait", 0), ("record", 1)),
        *(("wait", 1), ("record", 2)),
    ]


def test_a_gpu_warms_up_for_a_while(signs, torch, monkeypatch):
    step = pytorch_gpu.GpuStep(signs, setting(), 0)
    done = []
    step._run = lambda: done.append("step")
    monkeypatch.setattr(step, "synchronize", lambda: done.append("wait"))
    began = time.perf_counter()
    step._warm_up()
    assert time.perf_counter() - began >= pytorch_gpu.WARM_UP_S
    lead = [*["step"] * pytorch_gpu.AHEAD, "wait"]
    assert done[: len(lead)] == done[-len(lead) :] == lead


def test_bfloat16_is_that_of_the_operands_only(signs, torch):
    step = pytorch_gpu.GpuStep(replace(signs, hidden=(16,)), setting(precision="bfloat16"), 0)
    products = []
    for layer in step._network:
        layer.register_forward_hook(lambda layer, given, out: products.append(out.dtype))
    step._train()
    assert {*products} == {torch.bfloat16}
    assert {p.grad.dtype for p in step._network.parameters()} == {torch.float32}
    products.clear()
    step.scores(step._x[:2])
    assert {*products} == {torch.float32}  # evaluation


def test_no_batch_of_the_grid_is_larger_than_the_set(signs):
    assert {each["batch"] for each in PEER.grid(signs)} == {64, 256}
    many = replace(signs, train=Rows(np.zeros((5000, 1), np.float32), np.zeros(5000, np.float32)))
    assert {each["batch"] for each in PEER.grid(many)} == set(BATCHES)


@pytest.mark.parametrize(
    ("code", "said", "objected"),
    [
        (0, "2.9 2\n", None),
        (0, "2.9 1\n", "torch 2.9 cannot use GPU 1: it finds 1 GPUs"),
        (1, "", "torch cannot be imported: ImportError: no cublas"),
    ],
)
def test_why_pytorch_cannot_train_is_one_sentence(code, said, objected, monkeypatch):
    monkeypatch.setattr(pytorch_gpu, "available", lambda peer: "2.9")
    answer = SimpleNamespace(
        returncode=code, stdout=said, stderr="Traceback\nImportError: no cublas"
    )
    monkeypatch.setattr(subprocess, "run", lambda *command, **given: answer)
    assert objection("1") == objected


def test_without_torch_nobody_is_asked(monkeypatch):
    monkeypatch.setattr(pytorch_gpu, "available", lambda peer: None)
    assert objection("0") == "torch is not installed"
