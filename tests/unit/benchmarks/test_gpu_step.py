"""On the host, without PyTorch."""

import json
import math

import numpy as np
import pytest

import benchmarks.gpu_step.__main__ as gpu_step
from benchmarks.gpu_step import hogbatch_steps
from benchmarks.gpu_step.course import CHECKED_BATCHES, CHECKED_STEPS, Course, compare
from benchmarks.gpu_step.problem import Shape, SyntheticProblem
from benchmarks.gpu_step.table import head, line, summarised
from hogbatch.errors import DeviceError
from hogbatch.kernels.gpu.graph import CapturedSteps

SMALL = {
    "6-16-3": Shape(6, (16, 16), 3, (0.05, 0.01)),
    "40:4-16-2": Shape(40, (16,), 2, (0.5, 0.01), stored=4),
    "400:2-16-2": Shape(400, (16,), 2, (0.5, 0.01), stored=2),
}
FLAGS = ["--device", "host", "--batches", "8,16", "--repetitions", "2", "--seconds", "0.0001"]


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(gpu_step, "NETWORKS", SMALL)
    monkeypatch.setattr(gpu_step, "HOST_SIDE", 32)
    return SMALL


def run(*flags, peers="none", networks=SMALL):
    names = ",".join(networks)
    return gpu_step.main([*FLAGS, "--networks", names, "--peers", peers, *flags])


def test_without_pytorch_ours_is_measured_alone(small, monkeypatch, capsys):
    monkeypatch.setattr(gpu_step, "find_spec", lambda name: None)
    assert run("--precision", "tf32", peers="eager", networks=["6-16-3"]) == 0
    told = capsys.readouterr().out
    assert "skipping PyTorch: torch is not installed" in told
    assert "eager" not in told


def test_steps_that_do_other_work_are_marked_and_the_others_go_on(
    small, monkeypatch, tmp_path, capsys
):
    plain = CapturedSteps.set_rate
    monkeypatch.setattr(CapturedSteps, "set_rate", lambda self, rate: plain(self, 1.2 * rate))
    path = tmp_path / "out.json"
    assert run("--precision", "float32", "--json", str(path), networks=["6-16-3"]) == 1
    results = json.loads(path.read_text())["results"]
    assert [each["batch"] for each in results] == [8, 16]
    for each in results:
        assert each["mismatched"] == ["not recorded"]
        assert each["differences"]["hogbatch"] == 0 < each["differences"]["not recorded"]
        assert set(each["step_seconds"]) == {"hogbatch", "not recorded", "products"}
    assert capsys.readouterr().out.count("| not recorded 0.") == 2


def test_a_step_that_diverges_is_marked(small, monkeypatch, tmp_path):
    monkeypatch.setattr(hogbatch_steps.HogbatchSteps, "loss", lambda self: math.nan)
    path = tmp_path / "out.json"
    assert run("--precision", "float32", "--json", str(path), networks=["6-16-3"]) == 1
    for each in json.loads(path.read_text())["results"]:
        assert each["mismatched"] == each["diverged"] == ["hogbatch", "not recorded"]
        assert each["differences"] == {"hogbatch": None, "not recorded": None}


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


def test_only_a_peer_without_a_finite_loss_is_mismatched():
    found = compare(losses(graph=math.nan, eager=0.6), "tf32")
    assert found.mismatched == ["graph"] and found.differences["graph"] is None


@pytest.mark.parametrize(
    "hogbatch",
    [
        [1.0] * (CHECKED_STEPS + 1),
        [math.nan] * (CHECKED_STEPS + 1),
        [float(n % CHECKED_BATCHES) for n in range(CHECKED_STEPS + 1)],
    ],
    ids=["nothing was learned", "not a number", "only the batches differ"],
)
def test_invalid_or_constant_losses_match_no_variant(hogbatch):
    found = compare({"hogbatch": hogbatch, "graph": hogbatch}, "bfloat16")
    assert found.mismatched == ["hogbatch", "graph"]


def test_a_peer_that_fails_is_left_out_from_there_on(small, monkeypatch, tmp_path, capsys):
    asked = []

    def fails(self, name, batch):
        asked.append((name, batch))
        raise RuntimeError("operation not permitted\nwhen stream is capturing")

    monkeypatch.setattr(Course, "_peer", fails)
    monkeypatch.setattr(gpu_step, "settle", lambda arguments: None)
    monkeypatch.setattr(gpu_step, "description", lambda arguments: {})
    monkeypatch.setattr(gpu_step, "square_speeds", lambda arguments, precision: {"hogbatch": 1.0})
    path = tmp_path / "out.json"
    flags = ("--precision", "float32", "--json", str(path))
    assert run(*flags, peers="graph", networks=["6-16-3"]) == 0
    assert asked == [("graph", 8)]
    assert capsys.readouterr().out.count("skipping graph: operation not permitted\n") == 1
    results = json.loads(path.read_text())["results"]
    assert [each["left_out"] for each in results] == [{"graph": "operation not permitted"}] * 2
    assert "graph" not in results[1]["step_seconds"]


def test_nothing_is_begun_after_the_limit(small, capsys):
    assert run("--limit", "1e-9", "--precision", "tf32") == 0
    told = capsys.readouterr().out
    assert "stopped before 6-16-3, tf32, sgd, batches of 8: --limit 1e-09 reached" in told
    assert "| 6-16-3 |" not in told


def test_operations_are_those_of_the_products():
    assert Shape(3, (5,), 2, (0, 0)).flops == 2 * (2 * 3 * 5 + 3 * 5 * 2)
    assert Shape(4, (5,), 2, (0, 0), stored=3).flops == 2 * (2 * 3 * 5 + 3 * 5 * 2)


@pytest.mark.parametrize("stored", [0, 4])
def test_the_products_are_those_of_a_step(stored):
    """Counted by their sizes; these networks need no padding."""
    counted = []

    def multiply(a, b, out, transpose_a=False, transpose_b=False):
        counted.append(2 * a.size * out.shape[1] if not transpose_a else 2 * a.size * b.shape[1])
        hogbatch_steps._multiply_on_host(a, b, out, transpose_a, transpose_b)

    shape = Shape(32, (64, 16), 16, (0, 0), stored)
    device = hogbatch_steps.device_of("host", "float32")
    products = hogbatch_steps.Products(
        device, SyntheticProblem.build(shape, "relu", 8), 8, multiply
    )
    counted.clear()  # recording has done it once
    products.step(0)
    first = 2 * 2 * (stored or 32) * 64
    assert sum(counted) == 8 * (shape.flops - (first if stored else 0))


def test_rows_that_hogbatch_skips_make_its_loss_no_number():
    problem = SyntheticProblem.build(SMALL["6-16-3"], "relu", 32)
    problem.examples.inputs.dense[problem.order[3]] = np.nan
    device = hogbatch_steps.device_of("host", "float32")
    rows = hogbatch_steps.resident(device, problem, 8)
    steps = hogbatch_steps.HogbatchSteps(
        device, rows, problem, 8, "sgd", hogbatch_steps.VARIANTS["hogbatch"]
    )
    steps.step(0)
    assert math.isnan(steps.loss())
    steps.step(8)
    assert steps.loss() > 0


def test_sparse_rows_have_as_many_features_and_share_some():
    problem = SyntheticProblem.build(SMALL["40:4-16-2"], "relu", 500)
    inputs = problem.examples.inputs
    assert np.diff(inputs.indptr).tolist() == [4] * 500
    picked = inputs.indices.reshape(500, 4)
    assert (np.diff(picked, axis=1) > 0).all()
    assert (picked >= 0).all() and (picked < 40).all()
    often = np.bincount(inputs.indices, minlength=40)
    assert often.max() > 3 * np.median(often) > 0
    assert set(problem.examples.labels.values) == {0.0, 1.0}
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


def test_what_compiles_is_measured_at_three_sizes():
    assert gpu_step.compiled_at([1 << n for n in range(6, 16)]) == {64, 2048, 32768}
    assert gpu_step.compiled_at([128]) == {128}


def result(**step_seconds):
    named = {"network": "6-16-3", "precision": "tf32", "optimizer": "sgd", "batch": 100}
    agreed = {"differences": {}, "mismatched": [], "diverged": []}
    measured = {"flops_per_row": 10**9, "step_seconds": step_seconds}
    return summarised(named | agreed | measured, {"a": 2.0, "b": 4.0})


def test_the_table_shows_medians_and_the_faster_of_ours():
    shown = result(
        hogbatch=[0.1, 0.4, 0.1], **{"written out": [0.05]}, products=[0.02], graph=[0.1]
    )
    assert line(shown, ["eager", "graph"]) == (
        "| 6-16-3 | tf32 | sgd | 100 | 2 | 0.40 | 0.50 | 2.00 "
        "| 1e+03 | - | 2e+03 | 5e+03 | - | 1e+03 | same |"
    )
    titles, rule = head(["eager", "graph"]).splitlines()
    assert titles.count("|") == rule.count("|") == line(shown, ["eager", "graph"]).count("|")


def test_steps_that_are_not_recorded_are_no_worker_s():
    shown = result(hogbatch=[0.1], **{"not recorded": [0.05]}, products=[0.02])
    assert shown["of_products"] == pytest.approx(0.2)
    assert shown["over_best_peer"] is None


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--networks", "1-2"], "expected names from 300-512x8-2, "),
        (["--peers", "graph,jax"], "autotuned, none; got jax"),
        (["--batches", "64,0"], "expected a whole number above 0; got '0'"),
        (["--repetitions", "x"], "expected a whole number above 0; got 'x'"),
        (["--seconds", "nan"], "expected a number above 0; got 'nan'"),
        (["--device", "cpu"], "expected the number of a GPU, or host; got 'cpu'"),
        (["--precision", "none"], "expected names from float32, tf32, bfloat16; got none"),
    ],
)
def test_wrong_flags_are_refused(flags, told, capsys):
    with pytest.raises(SystemExit) as stopped:
        gpu_step.main(flags)
    assert stopped.value.code == 2
    assert told in capsys.readouterr().err


def test_without_a_gpu_one_sentence_says_what_to_do(monkeypatch, capsys):
    def refuses(name, precision):
        raise DeviceError(f"gpu:{name} needs CuPy")

    monkeypatch.setattr(hogbatch_steps, "device_of", refuses)
    assert gpu_step.main(["--device", "3"]) == 2
    told = capsys.readouterr().err
    assert told == "gpu_step: gpu:3 needs CuPy; --device host runs without a GPU\n"


def test_results_that_could_not_be_written_are_not_made(small, tmp_path, capsys):
    path = tmp_path / "no" / "out.json"
    assert run("--json", str(path)) == 2
    assert f"the directory {path.parent} does not exist" in capsys.readouterr().err
