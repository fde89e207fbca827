import json
import math
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array

import benchmarks.slide.__main__ as slide
from benchmarks.common.job import WITHIN_S
from benchmarks.common.search import BestSetting, TunedSettings
from benchmarks.peers import WIDE, peer
from benchmarks.peers.contract import Problem, Rows, Stopwatch
from benchmarks.slide.table import arrival, summarised, table

SMALL = (
    "features=300,labels=40,rows=1200,test_rows=200,labels_per_row=2,features_per_row=12,noise=0.1"
)
SETTINGS = {
    "pytorch-full": {
        "optimizer": "adam",
        "batch": 32,
        "lr": 0.01,
        "start": 0.1,
        "threads": 1,
        "form": "written-out",
    },
    "pytorch-sampled": {
        "optimizer": "adam",
        "batch": 32,
        "lr": 0.01,
        "start": 0.1,
        "threads": 1,
        "sample": 20,
        "law": "log-uniform",
        "correction": "negatives",
    },
}


@pytest.fixture
def torch():
    """With one thread, and as it was afterwards."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield torch
    torch.set_num_threads(threads)
    torch.set_flush_denormal(False)


@pytest.fixture
def tuned(monkeypatch, tmp_path):
    """Settings for the synthetic set, in a file of the test's own."""
    path = tmp_path / "tuned.json"
    entries = {name: {"setting": setting} for name, setting in SETTINGS.items()}
    path.write_text(json.dumps({"synthetic": entries}))
    monkeypatch.setattr(slide, "SETTINGS", TunedSettings(path))
    return path


@pytest.fixture
def planted():
    """Rows of 50 labels with one feature each, which a row has beside some noise."""
    random = np.random.default_rng(0)
    y = csr_array((random.random((640, 50)) < 0.05).astype(np.float32))
    x = csr_array(y + 0.1 * (random.random((640, 50)) < 0.05).astype(np.float32))
    train, test = (Rows(x[part], y[part]) for part in (slice(512), slice(512, 640)))
    return Problem("multilabel-softmax", (16,), 50, train, test)


def error_after(problem, name, **changed):
    """1 - P@1 at the start and at the end of a short run."""
    watch = Stopwatch(0.3, limit_s=WITHIN_S)
    peer(name).train(problem, SETTINGS[name] | changed, 0, watch)
    assert len(watch.metrics) == len(watch.curve)
    assert watch.rows % 32 == 0 < watch.rows
    return watch.curve[0][1], watch.curve[-1][1]


@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
@pytest.mark.parametrize("form", ["autograd", "written-out"])
def test_over_all_labels_it_learns(form, optimizer, planted, torch):
    lr = {"adam": 0.01, "adagrad": 0.1}[optimizer]
    first, last = error_after(planted, "pytorch-full", form=form, optimizer=optimizer, lr=lr)
    assert last <= 0.3 < 0.8 < first


@pytest.mark.parametrize("law", ["uniform", "log-uniform"])
@pytest.mark.parametrize("correction", ["none", "negatives", "all"])
def test_over_a_sample_it_learns(law, correction, planted, torch):
    first, last = error_after(planted, "pytorch-sampled", law=law, correction=correction)
    assert last <= 0.3 < 0.8 < first


def steps_of(name, problem, count, **changed):
    """The network after `count` steps, on the first rows."""
    from benchmarks.peers import pytorch_sampled, pytorch_wide, torch_wide

    make = {"pytorch-full": pytorch_wide, "pytorch-sampled": pytorch_sampled}[name].stepper
    rows = torch_wide.labelled(problem.train)
    network, step = make(rows, problem, SETTINGS[name] | changed, 0)
    batches = torch_wide.batches(rows, 32, np.random.default_rng(0))
    for _ in range(count):
        step(next(batches))
    return network


def differ(a, b):
    """The most that two networks' weights differ by."""
    pairs = ((getattr(a, each), getattr(b, each)) for each in ("first", "weight", "bias"))
    return max(float((one - other).detach().abs().max()) for one, other in pairs)


def test_what_is_written_out_is_what_autograd_finds(planted, torch):
    forms = ("autograd", "written-out")
    networks = [steps_of("pytorch-full", planted, 4, form=form) for form in forms]
    assert differ(*networks) < 1e-5
    assert differ(networks[0], steps_of("pytorch-full", planted, 0)) > 1e-2


def test_a_sample_of_all_labels_is_all_labels(planted, torch):
    """Adagrad, for Adam changes rows without a gradient too."""
    changed = {"optimizer": "adagrad", "lr": 0.1}
    many = {"sample": 5000, "law": "uniform", "correction": "none"}
    sampled = steps_of("pytorch-sampled", planted, 4, **changed, **many)
    assert differ(sampled, steps_of("pytorch-full", planted, 4, **changed)) < 1e-5
    fewer = steps_of("pytorch-sampled", planted, 4, **changed, **(many | {"sample": 5}))
    assert differ(sampled, fewer) > 1e-2


@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
def test_a_step_by_row_is_that_of_pytorch(optimizer, torch):
    from benchmarks.peers.torch_wide import ByRow

    setting = {"optimizer": optimizer, "lr": 0.1}
    kinds = {"adam": torch.optim.SparseAdam, "adagrad": torch.optim.Adagrad}
    weight = torch.nn.Parameter(torch.ones(6, 3))
    ours, theirs = ByRow(mine := torch.ones(6, 3), setting), kinds[optimizer]([weight], lr=0.1)
    for rows in ([0, 2], [2, 5], [2, 3]):
        gradient = torch.randn(2, 3, generator=torch.Generator().manual_seed(rows[1]))
        ours.step(torch.tensor(rows), gradient)
        index = torch.tensor([rows])
        with torch.sparse.check_sparse_tensor_invariants():
            weight.grad = torch.sparse_coo_tensor(index, gradient, (6, 3))
            theirs.step()
    assert torch.allclose(mine, weight.detach(), atol=1e-6)
    assert bool((mine[[1, 4]] == 1).all())


def test_the_loss_is_cross_entropy_with_equal_shares(torch):
    from benchmarks.peers.pytorch_full import loss_of
    from benchmarks.peers.torch_wide import batch

    y = np.array([[1, 0, 1, 0], [0, 1, 0, 0]], np.float32)
    found = batch(csr_array(np.eye(2, dtype=np.float32)), csr_array(y), 0, 2)
    scores = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    fractions = torch.from_numpy(y / y.sum(axis=1, keepdims=True))
    expected = torch.nn.functional.cross_entropy(scores, fractions)
    assert loss_of(scores, found).item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize("law", ["uniform", "log-uniform"])
def test_chances_are_how_often_labels_are_active(law):
    from benchmarks.peers.pytorch_sampled import Sampler

    random = np.random.default_rng(0)
    y = csr_array((random.random((4000, 12)) < np.linspace(0.2, 0.01, 12)).astype(np.float32))
    rows = Rows(csr_array((4000, 1), dtype=np.float32), y)
    setting = {"sample": 4, "batch": 5, "law": law}
    sampler, times = Sampler(rows, 12, setting, 0), np.zeros(12)
    draws = 4000
    for _ in range(draws):
        true = y[random.integers(4000, size=5)].indices
        active, places = sampler.active(true)
        assert np.array_equal(active[places], true)
        times[active] += 1
    error = np.sqrt(sampler.probability * (1 - sampler.probability) / draws)
    assert np.all(np.abs(times / draws - sampler.probability) < 4 * error)


def test_corrected_scores_sum_to_those_of_all_labels_on_average(torch):
    from benchmarks.peers.pytorch_sampled import correct

    random, sums = np.random.default_rng(0), []
    chance = torch.tensor([0.9, 0.5, 0.2, 0.1])
    for _ in range(4000):
        active = torch.from_numpy(random.random(4) < chance.numpy())
        active[3] = True  # the row's own
        found = active.nonzero()[:, 0]
        own = int((found == 3).nonzero())
        scores = torch.arange(4.0)[found][None]
        correct(scores, chance.log()[found], (torch.tensor([0]), torch.tensor([own])), "negatives")
        sums.append(float(scores.exp().sum()))
    expected, error = np.exp(np.arange(4)).sum(), np.std(sums) / math.sqrt(len(sums))
    assert abs(np.mean(sums) - expected) < 4 * error < 0.1 * expected


@pytest.mark.parametrize(("which", "shift"), [("none", 0.0), ("all", math.log(4))])
def test_a_correction_of_all_shifts_true_labels_too(which, shift, torch):
    from benchmarks.peers.pytorch_sampled import correct

    scores, chance = torch.zeros(1, 2), torch.tensor([1.0, 0.25])
    correct(scores, chance.log(), (torch.tensor([0]), torch.tensor([1])), which)
    assert scores.tolist() == [[0.0, pytest.approx(shift)]]


def test_precisions_are_exact_in_every_block(planted, torch, monkeypatch):
    from benchmarks.peers import torch_wide

    network = torch_wide.WideNetwork(planted, SETTINGS["pytorch-full"], 0)
    scores, y = network.scores(planted.test.x).numpy(), planted.test.y.toarray()
    order = np.argsort(-scores, axis=1)
    metric_sums = np.take_along_axis(y, order, axis=1)
    expected = {f"P@{k}": pytest.approx(metric_sums[:, :k].mean()) for k in (1, 3, 5)}
    monkeypatch.setattr(torch_wide, "SCORES", 50 * 30)  # 128 rows are no multiple of 30
    assert torch_wide.precisions(planted, network) == expected


def test_rows_without_labels_are_left_out(torch):
    from benchmarks.peers.torch_wide import labelled

    y = csr_array(np.array([[0, 1], [0, 0], [1, 1]], np.float32))
    rows = labelled(Rows(csr_array(np.eye(3, dtype=np.float32)), y))
    assert rows.x.toarray().argmax(axis=1).tolist() == [0, 2]
    assert rows.y.toarray().tolist() == [[0, 1], [1, 1]]


def test_a_peer_trains_on_a_synthetic_set(tuned, torch, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(slide, "NEVER", 1 - 0.5)  # it ends when it has learned enough
    path = tmp_path / "out.json"
    flags = ["--synthetic", SMALL, "--ours", "", "--peers", "pytorch-sampled", "--targets", "0.5"]
    assert (
        slide.main([*flags, "--seconds", str(WITHIN_S), "--seeds", "1", "--json", str(path)]) == 0
    )
    written = json.loads(path.read_text())
    (run,) = written["runs"]
    assert run["best"]["P@1"] >= 0.5 and 0 < run["seconds"]["0.5"] <= run["curve"][-1][0]
    assert all(len(point) == len(written["about"]["curve"]) for point in run["curve"])
    assert run["rows_per_s"] == round(run["rows"] / run["curve"][-1][0])
    assert written["about"]["set"]["labels"] == 40
    assert str(tmp_path) not in path.read_text()
    assert "| pytorch-sampled |" in capsys.readouterr().out


def test_ours_are_told_data_network_and_output_layer(monkeypatch, tmp_path):
    summary = {
        "rows": 500,
        "history": [
            {"seconds": 0.0, "test_values": {}},
            {"seconds": 2.0, "test_values": {"P@1": 0.4, "P@3": 0.3, "P@5": 0.2}},
        ],
        "workers": [
            {"name": "cpu:2", "threads": 2, "batch_size": 64, "updates": 30, "active": 50.0},
            {"name": "cpu:1", "threads": 1, "batch_size": 32, "updates": 10, "active": 10.0},
            {"name": "gpu:host", "threads": 1, "batch_size": 8, "updates": 99, "active": None},
        ],
    }
    commands = []

    def run(command, **given):
        commands.append(command)
        run_dir = slide.Path(command[command.index("--run-dir") + 1])
        run_dir.mkdir()
        (run_dir / "summary.json").write_text(json.dumps(summary))
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(subprocess, "run", run)
    task = slide.XmcFiles("small", tmp_path / "train.xmc", tmp_path / "test.xmc")
    arguments = SimpleNamespace(flags=["--lr", "0.1"], seconds=9.0)
    done = slide.train_ours(task, 1000, "lsh", 3, arguments)
    given = " ".join(commands[0])
    for each in ("--loss softmax", "--hidden 128", "--output lsh", "--lr 0.1", "--seed 3"):
        assert each in given
    assert done["curve"] == [[2.0, 0.4, 0.3, 0.2]] and done["rows"] == 500
    assert done["workers"] == {"cpu:2": [2, 64], "cpu:1": [1, 32], "gpu:host": [1, 8]}
    assert done["active"] == 0.04


def test_a_run_of_ours_that_fails_says_why(monkeypatch, tmp_path):
    done = SimpleNamespace(returncode=2, stderr="hogbatch: no such file\n")
    monkeypatch.setattr(subprocess, "run", lambda *command, **given: done)
    task = slide.XmcFiles("small", tmp_path / "train.xmc", tmp_path / "test.xmc")
    run = slide.train_ours(task, 9, "dense", 0, SimpleNamespace(flags=[], seconds=1.0))
    assert run == {"error": "exit code 2: hogbatch: no such file", "rows": 0, "curve": []}
    assert slide.line(summarised(run, [0.5])) == "exit code 2: hogbatch: no such file"


def test_a_peer_without_a_setting_is_not_trained(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(slide, "SETTINGS", TunedSettings(tmp_path / "none.json"))
    flags = ["--synthetic", SMALL, "--ours", "", "--seeds", "1", "--seconds", "1"]
    monkeypatch.setattr(slide, "installed", list)
    monkeypatch.setattr(slide, "version", lambda package: "0")
    assert slide.main(flags) == 0
    assert "| pytorch-full | failed |" in capsys.readouterr().out


def run(name, *curve, rows=1000):
    return {"name": name, **summarised({"rows": rows, "curve": list(curve)}, [0.5, 0.55])}


def test_a_run_is_summarised_by_its_best():
    found = run("lsh", [0, 0, 0, 0], [2.0, 0.51, 0.4, 0.3], [4.0, 0.49, 0.5, 0.3])
    assert found["seconds"] == {"0.5": 2.0, "0.55": None}
    assert found["best"] == {"P@1": 0.51, "P@3": 0.4, "P@5": 0.3}
    assert found["rows_per_s"] == 250
    assert arrival(found["curve"], 0.51) == 2.0


def test_the_table_compares_with_the_best_peer():
    runs = [
        run("lsh", [1.0, 0.5, 0.4, 0.3], [2.0, 0.56, 0.4, 0.3]) | {"active": 0.025},
        run("dense", [10.0, 0.4, 0.3, 0.2]),
        run("pytorch-full", [20.0, 0.5, 0.4, 0.3], [40.0, 0.56, 0.4, 0.3]),
        run("pytorch-sampled", [4.0, 0.51, 0.4, 0.3]),
        {"name": "pytorch-new", "error": "none", "rows": 0, "curve": []},
    ]
    assert table(runs, [0.5, 0.55]).splitlines()[2:] == [
        "| lsh | 500 | 2.50% | 1 | 2 | 0.560 | 0.400 | 0.300 | 0.25 | 0.05 |",
        "| dense | 100 | - | not met | not met | 0.400 | 0.300 | 0.200 | - | - |",
        "| pytorch-full | 25 | - | 20 | 40 | 0.560 | 0.400 | 0.300 | 5.00 | 1.00 |",
        "| pytorch-sampled | 250 | - | 4 | not met | 0.510 | 0.400 | 0.300 | 1.00 | - |",
        "| pytorch-new | failed | - | - | - | - | - | - | - | - |",
    ]


def test_a_median_takes_a_run_that_did_not_arrive_as_endless():
    arrived, not_arrived = run("lsh", [1.0, 0.6, 0, 0]), run("lsh", [1.0, 0.1, 0, 0])
    assert "| not met |" in table([arrived, not_arrived, not_arrived], [0.5])
    assert "| not met |" not in table([arrived, arrived, not_arrived], [0.5])


def test_a_setting_found_is_kept_beside_others(tmp_path):
    reached = BestSetting(0.45, {"lr": 1.0}, [(0, 1.0), (7.0, 0.44)])
    missed = BestSetting(0.45, {"lr": 2.0}, [(0, 1.0), (7.0, 0.5)])
    settings = TunedSettings(tmp_path / "tuned.json")
    settings.keep("a", "pytorch-full", slide.tuned_entry(reached, 9))
    settings.keep("b", "pytorch-full", slide.tuned_entry(missed, 9))
    expected = {"target": 0.55, "best": 0.56, "seconds": 7.0, "grid_size": 9}
    assert settings.read()["a"]["pytorch-full"] == {"setting": {"lr": 1.0}, **expected}
    assert settings.read()["b"]["pytorch-full"]["seconds"] is None


def test_a_batch_that_the_rows_cannot_fill_is_refused(planted, torch):
    with pytest.raises(ValueError, match=r"expected 600 rows with labels; got \d+"):
        error_after(planted, "pytorch-full", batch=600)


def test_settings_kept_in_the_project_come_out_of_the_grids(planted):
    tuned = slide.SETTINGS.read()
    assert set(tuned["citeulike"]) == set(WIDE)
    for which, found in tuned.items():
        for name, entry in found.items():
            assert entry["setting"] in peer(name).grid(planted), (which, name)


def test_names_of_peers_match_their_modules_and_grids_have_nothing_twice(planted):
    assert [peer(name).name for name in WIDE] == list(WIDE)
    for name in WIDE:
        grid = [json.dumps(setting, sort_keys=True) for setting in peer(name).grid(planted)]
        assert len(set(grid)) == len(grid) > 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--data", "a.xmc"], "--data needs --test"),
        ([], "one of the arguments --data --synthetic is required"),
        (["--synthetic", "label=3"], "got label=3"),
        (["--synthetic", "labels=0"], "labels: expected"),
        (["--synthetic", "", "--targets", "0.6,0.5"], "got 0.6,0.5"),
        (["--synthetic", "", "--peers", "keras"], "got keras"),
    ],
)
def test_flags_that_cannot_be_are_refused(flags, said, capsys):
    with pytest.raises(SystemExit) as ended:
        slide.parse(flags)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_other_labels_than_lists_are_refused(tmp_path, capsys, monkeypatch):
    path = tmp_path / "rows.svm"
    path.write_text("1 1:0.5\n-1 2:0.5\n")
    monkeypatch.setattr(slide, "installed", list)
    assert slide.main(["--data", str(path), "--test", str(path)]) == 2
    assert "expected lists of labels" in capsys.readouterr().err


def test_paths_stay_out_of_the_command(monkeypatch):
    monkeypatch.setattr("sys.argv", ["slide.py", "--data=/a/b/c.xmc", "--test", "../d/e.xmc"])
    arguments = slide.parse(["--synthetic", "labels=7", "--peers", ""])
    told = slide.description(arguments, slide.XmcFiles("synthetic", slide.Path(), slide.Path()))
    assert told["command"] == "slide.py --data=DIR/c.xmc --test DIR/e.xmc"
    assert told["set"]["labels"] == 7 and not math.isnan(told["seconds"])
