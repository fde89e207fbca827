"""The plans of the papers' networks, and the table in docs/cluster.md."""

import json
from pathlib import Path

import pytest

from benchmarks import paper_plans
from benchmarks.paper_plans import CORES_FLOPS, NETWORKS, PaperNetwork, planned, rounded, table
from hogbatch.cli import main
from hogbatch.cluster.link import ServerLink

ROOT = Path(__file__).parents[3]
LINK = ServerLink(50e-6, 1.25e9)


def results(servers=100, link=LINK):
    return [planned(each, kind, servers, link) for each in NETWORKS for kind in each.speeds]


def test_operations_of_a_row():
    dense = PaperNetwork("x", "", (10, 20, 3), 100)
    assert dense.flops == 4 * 10 * 20 + 6 * 20 * 3
    sparse = PaperNetwork("x", "", (1000, 20, 3), 100, 10.0)
    assert sparse.flops == dense.flops


def test_the_measured_speed_is_that_of_the_network_it_was_measured_on():
    w8a = next(each for each in NETWORKS if each.name == "w8a")
    assert w8a.sizes == (300, *[512] * 8, 2)
    assert w8a.speeds["two cores"] == pytest.approx(40_500, rel=0.01)  # docs/performance.md
    assert CORES_FLOPS / w8a.flops == pytest.approx(40_500, rel=0.01)


def test_the_table_is_in_the_docs():
    assert table(results()) in (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")


def test_the_results_are_marked_as_predicted():
    path = ROOT / "benchmarks" / "results" / "paper_plans_2026-11-25.json"
    found = json.loads(path.read_text())
    assert found["about"]["predicted"] is True
    assert {each["network"] for each in found["results"]} == {each.name for each in NETWORKS}


def test_hogbatch_plan_says_the_same(capsys):
    expected = results()[0]
    flags = {
        "--network": ",".join(map(str, expected["sizes"])),
        "--rows": str(expected["rows"]),
        "--rows-per-second": repr(expected["rows_per_second"]),
        "--merges-per-epoch": "1",
        "--servers": "100",
    }
    assert main(["plan", *(text for pair in flags.items() for text in pair), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (plan,) = found["plans"]
    assert found["most_servers"] == expected["most_servers"]
    for name in ("merge_seconds", "messages", "sent_bytes", "possible", "most_merges_per_epoch"):
        assert plan[name] == pytest.approx(expected[name])
    assert plan["share"] == pytest.approx(expected["share_with_one_merge_per_epoch"])


def test_few_servers_and_fast_links_make_it_possible():
    assert not any(each["possible"] for each in results())
    assert any(each["possible"] for each in results(servers=2))
    fast = {each["network"] for each in results(link=ServerLink(5e-6, 12.5e9)) if each["possible"]}
    assert fast == {"covtype"}


def test_numbers_are_rounded_to_three_digits():
    assert [rounded(each) for each in (1234.5, 12_345, 0.4)] == ["1,230", "12,300", "0"]


def test_the_benchmark_prints_and_writes(tmp_path, monkeypatch, capsys):
    path = tmp_path / "out.json"
    monkeypatch.setattr("sys.argv", ["paper_plans", "--servers", "8", "--json", str(path)])
    paper_plans.main()
    assert capsys.readouterr().out.count("\n") == 2 + 2 * len(NETWORKS)
    assert {each["servers"] for each in json.loads(path.read_text())["results"]} == {8}
