"""On the host, without PyTorch."""

import json
import math

import numpy as np
import pytest

import benchmarks.gpu_step.__main__ as gpu_step
from benchmarks.gpu_step import hogbatch_steps
from benchmarks.gpu_step.course import CHECKED_BATCHES, CHECKED_STEPS, compare
from benchmarks.gpu_step.problem import Shape, SyntheticProblem
from benchmarks.gpu_step.table import line, summarised
from hogbatch.kernels.gpu.graph import CapturedSteps

DENSE = Shape(6, (16, 16), 3, (0.05, 0.01))
SPARSE = Shape(40, (16,), 2, (0.5, 0.01), stored=4)
FLAGS = [
    *("--device", "host", "--batches", "8,16", "--repetitions", "2", "--seconds", "0.0001"),
    *("--networks", "6-16-3", "--peers", "none", "--precision", "float32"),
]


def test_steps_that_do_other_work_or_diverge_are_marked(monkeypatch, tmp_path):
    def run():
        code = gpu_step.main([*FLAGS, "--json", str(path)])
        content = json.loads(path.read_text())
        assert content["about"]["cores"] > 0
        return code, content["results"]

    path = tmp_path / "out.json"
    monkeypatch.setattr(gpu_step, "NETWORKS", {"6-16-3": DENSE})
    monkeypatch.setattr(gpu_step, "HOST_SIDE", 32)
    plain = CapturedSteps.set_rate
    monkeypatch.setattr(CapturedSteps, "set_rate", lambda self, rate: plain(self, 1.2 * rate))
    code, results = run()
    assert code == 1 and [each["batch"] for each in results] == [8, 16]
    for each in results:
        assert each["mismatched"] == ["not recorded"]
        assert each["differences"]["hogbatch"] == 0 < each["differences"]["not recorded"]
        assert set(each["step_seconds"]) == {"hogbatch", "not recorded", "products"}
    monkeypatch.setattr(hogbatch_steps.HogbatchSteps, "loss", lambda self: math.nan)
    for each in run()[1]:
        assert each["mismatched"] == each["diverged"] == ["hogbatch", "not recorded"]


def losses(**changed):
    """Falling by 0.02 a step, from 1 on; `changed` sets the last of a name's."""
    falling = [1 - 0.02 * n for n in range(CHECKED_STEPS + 1)]
    return {"hogbatch": falling} | {name: [*falling[:-1], last] for name, last in changed.items()}


def test_differences_of_losses_are_fractions_of_the_change_by_training():
    assert compare(losses(), "float32") == ({"hogbatch": 0}, 0.02)
    found = compare(losses(graph=0.604, eager=0.62), "float32")
    assert found.differences == pytest.approx({"hogbatch": 0, "graph": 0.01, "eager": 0.05})
    assert found.mismatched == ["eager"]
    assert compare(losses(eager=0.62), "bfloat16").mismatched == []
    found = compare(losses(graph=math.nan, eager=0.6), "tf32")
    assert found.mismatched == ["graph"] and found.differences["graph"] is None


@pytest.mark.parametrize(
    "hogbatch",
    [
        [math.nan] * (CHECKED_STEPS + 1),
        [float(n % CHECKED_BATCHES) for n in range(CHECKED_STEPS + 1)],
    ],
    ids=["not a number", "only the batches differ"],
)
def test_invalid_or_constant_losses_match_no_variant(hogbatch):
    found = compare({"hogbatch": hogbatch, "graph": hogbatch}, "bfloat16")
    assert found.mismatched == ["hogbatch", "graph"]


@pytest.mark.parametrize("stored", [0, 4])
def test_the_products_are_those_of_a_step(stored):
    """Counted by their sizes; these networks need no padding."""
    counted = []

    def multiply(a, b, out, transpose_a=False, transpose_b=False):
        counted.append(2 * a.size * out.shape[1] if not transpose_a else 2 * a.size * b.shape[1])
        hogbatch_steps._multiply_on_host(a, b, out, transpose_a, transpose_b)

    shape = Shape(32, (64, 16), 16, (0, 0), stored)
    device = hogbatch_steps.device_of("host", "float32")
    problem = SyntheticProblem.build(shape, "relu", 8)
    products = hogbatch_steps.Products(device, problem, 8, multiply)
    counted.clear()  # recording has done it once
    products.step(0)
    first = 2 * 2 * (stored or 32) * 64
    assert sum(counted) == 8 * (shape.flops - (first if stored else 0))
    assert shape.flops == 2 * (2 * (stored or 32) * 64 + 3 * (64 * 16 + 16 * 16))


def test_the_products_of_layers_below_dense_ones_are_counted():
    counted = []

    def multiply(a, b, out, transpose_a=False, transpose_b=False):
        counted.append(2 * out.size * (a.shape[0] if transpose_a else a.shape[1]))
        hogbatch_steps._multiply_on_host(a, b, out, transpose_a, transpose_b)

    shape = Shape(96, (16,), 16, (0, 0), layers="4x8x3,conv:16x3x3,relu,pool:2")
    device = hogbatch_steps.device_of("host", "float32")
    problem = SyntheticProblem.build(shape, "relu", 8)
    hogbatch_steps.Products(device, problem, 8, multiply)
    assert sum(counted) == 8 * shape.flops
    assert shape.flops == 2 * (2 * 32 * 27 * 16 + 3 * (128 * 16 + 16 * 16))


def test_rows_that_hogbatch_skips_make_its_loss_no_number():
    problem = SyntheticProblem.build(DENSE, "relu", 32)
    problem.examples.inputs.dense[problem.order[3]] = np.nan
    device = hogbatch_steps.device_of("host", "float32")
    rows = hogbatch_steps.resident(device, problem, 8)
    variant = hogbatch_steps.VARIANTS["hogbatch"]
    steps = hogbatch_steps.HogbatchSteps(device, rows, problem, 8, "sgd", variant)
    steps.step(0)
    assert math.isnan(steps.loss())
    steps.step(8)
    assert steps.loss() > 0


def test_sparse_rows_have_as_many_features_and_share_some():
    problem = SyntheticProblem.build(SPARSE, "relu", 500)
    inputs = problem.examples.inputs
    assert np.diff(inputs.indptr).tolist() == [4] * 500
    picked = inputs.indices.reshape(500, 4)
    assert (np.diff(picked, axis=1) > 0).all()
    assert (picked >= 0).all() and (picked < 40).all()
    often = np.bincount(inputs.indices, minlength=40)
    assert often.max() > 3 * np.median(often) > 0
    assert sorted(problem.order) == list(range(500))


class Noted:
    """Work that notes what it was asked for."""

    def __init__(self, name, log):
        self.name, self.log, self.starts = name, log, []

    def step(self, start):
        self.starts.append(start)
        self.log.append(self.name)

    def synchronize(self):
        pass


def test_all_are_timed_in_turn_each_step_on_other_rows():
    log = []
    works = {name: Noted(name, log) for name in "abc"}
    times = gpu_step.timed(works, range(0, 64, 16), 1e-9, repetitions=3)
    assert {name: len(each) for name, each in times.items()} == dict.fromkeys("abc", 3)
    turns = log[:: gpu_step.MIN_STEPS][3:]
    for n in range(3):
        assert set(turns[3 * n : 3 * n + 3]) == set("abc")
    for work in works.values():
        assert work.starts == [0, 16, 32, 48] * 4


def test_the_table_shows_medians_and_the_faster_of_ours():
    def result(**step_seconds):
        named = {"network": "6-16-3", "precision": "tf32", "optimizer": "sgd", "batch": 100}
        agreed = {"differences": {}, "mismatched": [], "diverged": []}
        measured = {"flops_per_row": 10**9, "step_seconds": step_seconds}
        return summarised(named | agreed | measured, {"a": 2.0, "b": 4.0})

    ours = {"hogbatch": [0.1, 0.4, 0.1], "written out": [0.05]}
    shown = result(**ours, products=[0.02], graph=[0.1])
    assert line(shown, ["eager", "graph"]) == (
        "| 6-16-3 | tf32 | sgd | 100 | 2 | 0.40 | 0.50 | 2.00 "
        "| 1e+03 | - | 2e+03 | 5e+03 | - | 1e+03 | same |"
    )
    shown = result(hogbatch=[0.1], **{"not recorded": [0.05]}, products=[0.02])
    assert shown["of_products"] == pytest.approx(0.2), "a worker records its steps"
    assert shown["over_best_peer"] is None
