import argparse
import json
import time

import numpy as np
import pytest

from benchmarks.slide import clocks as slide_clocks, split as slide_split
from hogbatch.data.synthetic import SyntheticSettings, generate
from hogbatch.jit import kernel
from hogbatch.kernels.cpu.lsh import network as loop

pytestmark = pytest.mark.slow  # its loops are compiled with clocks in them

SMALL = "features=300,labels=60,rows=400,test_rows=1,labels_per_row=2,features_per_row=12"
# Of 64 single signs, a neuron with a positive product agrees with the row in one at least.
ALL_HELD = "simhash:K=1,L=64,bits=1,bucket=60,sampling=union,most=60"


@pytest.fixture(scope="module")
def rows():
    """400 rows of 60 labels."""
    settings = SyntheticSettings(
        features=300, labels=60, rows=400, test_rows=1, labels_per_row=2, features_per_row=12
    )
    return generate(settings)[0]


def training(rows, lsh="auto", **changed):
    given = {"lsh": lsh, "optimizer": "adagrad", "lr": 0.05, "batch": 32, "seed": 0}
    return slide_split.HashedTraining(rows, 60, argparse.Namespace(**given | changed))


@kernel
def shift(cells, times):
    for _ in range(times):
        for n in range(cells.shape[0]):
            cells[n] = 0.5 * cells[(n + 7) % cells.shape[0]] + 1.0
    return times


@kernel
def other(cells, times):
    return shift(cells, times)


@kernel
def work(cells, times):
    """The loop under test: three parts by `shift`, one by `other`."""
    return shift(cells, times) + shift(cells, 2 * times) + other(cells, times)


def test_a_clock_counts_its_kernel_alone_and_changes_nothing():
    nanoseconds, cells = np.zeros(2, np.int64), [np.arange(1000.0) for _ in range(2)]
    clocked = slide_clocks.with_clocks(work, [["shift"], ["other"]], nanoseconds)
    assert clocked(cells[0], 1) == work(cells[1], 1) == 4
    assert np.array_equal(*cells)
    nanoseconds[:] = 0
    began = time.clock_gettime(slide_clocks.CLOCK)
    clocked(cells[0], 20_000)
    whole = 1e9 * (time.clock_gettime(slide_clocks.CLOCK) - began)
    assert whole / 2 < nanoseconds.sum() < whole
    assert 1 < nanoseconds[0] / nanoseconds[1] < 10  # three times as much work


def test_a_name_that_the_loop_does_not_know_is_no_phase():
    with pytest.raises(KeyError, match="spun"):
        slide_clocks.with_clocks(work, [["spun"]], np.zeros(1, np.int64))


def test_with_clocks_the_loop_trains_the_same(rows):
    clocked, nanoseconds = slide_clocks.clocked_loop()
    nanoseconds[:] = 0
    plain, split = training(rows, "auto:rehash=4"), training(rows, "auto:rehash=4")
    plain.train(loop.train, np.arange(400))
    began = time.clock_gettime(slide_clocks.CLOCK)
    split.train(clocked, np.arange(400))
    whole = 1e9 * (time.clock_gettime(slide_clocks.CLOCK) - began)
    assert np.array_equal(plain.model.params, split.model.params)
    assert np.array_equal(plain.totals, split.totals)
    assert (nanoseconds > 0).all() and nanoseconds.sum() < whole


def test_tables_are_built_when_it_is_time(rows):
    found = training(rows, "auto:rehash=4,growth=2,rebuild=2")
    before = found.finder.functions
    built = []
    for count in range(1, 13):
        found.train(loop.train, np.arange(32))
        built.append(found.builds)
        if count == 4:  # the second: by the same functions, and only what has changed
            assert found.finder.functions is before and not found.thread.changed.any()
    # due at 4, and after twice as many
    assert built == [*[1] * 3, *[2] * 8, 3]
    assert found.finder.functions is not before
    assert found.building > 0


def test_what_all_tables_hold_is_recalled(rows):
    found = training(rows, ALL_HELD).recall()
    assert found["top 1"] == {"candidates": 1.0, "found": 1.0, "active": 1.0}
    assert found["candidates"] > 0.9


def test_what_tables_lack_is_not_recalled(rows):
    """The weights change, and the tables stay."""
    held = training(rows, "simhash:K=6,L=2,bits=6,random=0,most=1")
    found = held.recall()
    assert 0 < found["candidates"] < 0.5
    for top in ("top 1", "top 20"):
        assert found[top]["found"] <= found[top]["candidates"] < 0.9
    codes = np.zeros(2, np.int32)
    tables = held.finder.tables
    expected = {i for t in range(2) for i in tables.buckets[t, 0, : tables.counts[t, 0]]}
    assert set(held.held(codes)) == expected


def test_highest_scores_are_exact(rows):
    """Biases alone tell: every row's highest score is that of neuron 7, which no row looks up."""
    found = training(rows, "auto:most=1,random=0")
    found.bias[7] = 1e6
    found.finder.tables.counts[:] = 0
    labels = rows.labels
    recall = found.recall()
    assert recall["candidates"] == 0 == recall["top 1"]["found"]
    order = np.random.default_rng(0).permutation(400)[:256]
    having = [
        any(7 in labels.indices[labels.indptr[r] : labels.indptr[r + 1]] for r in order[s : s + 32])
        for s in range(0, 256, 32)
    ]
    assert recall["top 1"]["active"] == np.mean(having)


def test_it_is_told_where_the_time_went(tmp_path, capsys, monkeypatch):
    path = tmp_path / "out.json"
    monkeypatch.setattr("sys.argv", ["slide_split.py", "--json", "/a/b/out.json"])
    flags = ["--synthetic", SMALL, "--batch", "32", "--epochs", "2", "--lsh", "auto:rehash=4"]
    assert slide_split.main([*flags, "--json", str(path)]) == 0
    written = json.loads(path.read_text())
    (found,) = written["results"]
    spent = found["us_per_row"]
    assert list(spent) == [*slide_clocks.PHASES, "rest", "rebuild"]
    assert all(each > 0 for each in spent.values())
    apart = sum(spent.values()) - spent["rebuild"]
    assert apart == pytest.approx(1e6 / found["rows_per_s_clocked"], rel=0.01)
    assert 0 < found["active"] < 1 and found["lsh"]["family"] == "dwta"
    assert list(found["recall"]) == ["at the end", "rebuilt"]
    assert written["about"]["command"] == "slide_split.py --json DIR/out.json"
    assert "| select |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "one of the arguments --data --synthetic is required"),
        (["--synthetic", "", "--batch", "0"], "--batch and --epochs must be at least 1"),
        (["--synthetic", "", "--epochs", "0"], "--batch and --epochs must be at least 1"),
    ],
)
def test_flags_that_cannot_be_are_refused(flags, said, capsys):
    with pytest.raises(SystemExit) as ended:
        slide_split.main(flags)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_other_input_is_refused_in_a_sentence(tmp_path, capsys):
    path = tmp_path / "rows.svm"
    path.write_text("1 1:0.5\n-1 2:0.5\n")
    assert slide_split.main(["--data", str(path)]) == 2
    assert "expected lists of labels; got binary labels" in capsys.readouterr().err
    assert slide_split.main(["--synthetic", SMALL, "--lsh", "tree"]) == 2
    assert "got 'tree'" in capsys.readouterr().err
