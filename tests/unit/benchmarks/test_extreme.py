"""What the benchmark of extreme programs measures, chooses and generates."""

import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix

from benchmarks.extreme import __main__ as program, generated, process, programs
from benchmarks.peers.contract import Rows

Y = csr_array(np.array([[1, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0]], np.float32))
TEST_ROWS = 500
X = csr_array(np.eye(3, dtype=np.float32))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A small generated set."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generated, "TEST_ROWS", TEST_ROWS)
        yield generated.write(tmp_path_factory.mktemp("generated"), rows=2000, labels=3000)


def test_labels_are_ranked_by_score_and_missing_ones_are_minus_one():
    scores = csr_matrix(([0.2, 0.9, 0.5], [4, 7, 1], [0, 3, 3]), shape=(2, 9))
    assert programs.by_score(scores).tolist() == [[7, 1, 4, -1, -1], [-1] * 5]


def test_rows_have_norm_one_and_rows_of_zeros_stay_zeros():
    found = programs.unit(csr_matrix(np.array([[3.0, 4.0], [0, 0]], np.float32)))
    assert found.toarray() == pytest.approx(np.array([[0.6, 0.8], [0, 0]]))


def test_metrics_are_of_test_rows_and_a_missing_label_is_a_miss():
    split = program.Split(Rows(X, Y), Rows(X, Y))
    best = np.array([[2, 0, 1, 3, -1], [0, 1, 2, 3, -1], [-1, -1, -1, -1, -1]])
    found = split.metrics(best)
    assert (found["P@1"], found["P@3"]) == pytest.approx((1 / 3, 1 / 3), abs=1e-4)
    assert found["PSP@1"] > 0


def test_validation_rows_are_training_rows_and_are_not_trained_on():
    x = csr_array(np.diag(np.arange(1, 41, dtype=np.float32)))
    split = program.Split(Rows(x, x), Rows(X, Y))
    parts = program.held_out(split)
    train, validation = ({*part.x.data.tolist()} for part in (parts.train, parts.test))
    assert len(validation) == 4 and not train & validation and len(train | validation) == 40


def test_tuning_keeps_the_setting_with_the_highest_precision_on_validation_rows(
    tmp_path, monkeypatch
):
    values = iter([{"P@1": 0.2}, {"error": "killed"}, {"P@1": 0.4}, {"P@1": 0.3}])
    split = program.Split(Rows(X, Y), Rows(X, Y))
    known = programs.Program(programs.pytorch, "torch", "torch", lambda _: list("abcd"))
    monkeypatch.setitem(program.PROGRAMS, "pecos", known)
    monkeypatch.setattr(program, "TUNED", program.TunedSettings(tmp_path / "tuned.json"))
    monkeypatch.setattr(program, "train_once", lambda *_: next(values))
    options = program.argparse.Namespace(programs=["pecos"], python="", name="set")
    program.tune(options, split)
    assert program.TUNED.setting("set", "pecos") == "c"


def test_a_program_that_is_not_installed_is_named(monkeypatch, capsys):
    lacking = programs.Program(programs.pecos, "no-such-package", "", lambda _: [{}])
    monkeypatch.setitem(program.PROGRAMS, "pecos", lacking)
    assert program.installed(["pecos", "hogbatch"], sys.executable) == ["hogbatch"]
    assert "skipping pecos" in capsys.readouterr().out


def test_memory_counts_descendants():
    code = "import time; kept = b'1' * (64 << 20); print(1, flush=True); time.sleep(600)"
    before = process.memory(os.getpid())
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout.readline()
        with_child = process.memory(os.getpid())
        child.kill()
    assert with_child - before > 60 << 10


def test_the_generated_set_has_the_statistics_of_amazon_and_a_seed(files, tmp_path):
    train, test = files
    split = program.read(train, test)
    assert split.train.x.shape == (2000, generated.FEATURES)
    assert split.test.y.shape == (TEST_ROWS, 3000)
    assert split.train.x.nnz / 2000 == pytest.approx(76, rel=0.05)
    assert split.train.y.nnz / 2000 == pytest.approx(5.5, rel=0.05)
    counts = Counter(split.train.y.indices.tolist())
    assert counts.most_common(1)[0][1] > 20 and Counter(counts.values())[1] > 200
    again = generated.write(tmp_path, rows=2000, labels=3000)
    assert again[0].read_bytes() == train.read_bytes()


def test_labels_of_the_generated_set_can_be_learned(files):
    """Labels of the nearest training row are often those of the row; by chance, hardly ever."""
    split = program.read(*files)
    unit, y = (programs.unit(csr_matrix(part.x)) for part in split), split.train.y
    train, test = unit
    nearest = (test @ train.T).argmax(axis=1).A1
    shared = y[nearest].multiply(split.test.y).sum(axis=1)
    assert (shared > 0).mean() > 0.3


@pytest.mark.slow
def test_hogbatch_is_trained_and_measured_in_a_process_of_its_own(files, tmp_path):
    train, test = map(str, files)
    json_file = tmp_path / "found.json"
    flags = ["--data", train, "--test", test, "--programs", "hogbatch", "--json", str(json_file)]
    assert program.main([*flags, "--hogbatch", "epochs=1 hidden=16 members=1"]) == 0
    (run,) = program.report.json.loads(json_file.read_text())["runs"]
    assert "error" not in run, run
    assert run["process_s"] > run["train_s"] > 0 and run["memory_mib"] > 50


def test_the_sampled_softmax_learns():
    pytest.importorskip("torch")
    x = csr_matrix(np.tile(np.eye(8, dtype=np.float32), (64, 1)))
    setting = {"lr": 0.01, "sample": 4, "epochs": 40, "threads": 1}
    network = programs.sampled_softmax.train(x, x, setting, seed=0)
    assert network.top(x[:8], 2)[:, 0].tolist() == list(range(8))
