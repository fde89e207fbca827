import json

from benchmarks.common import report


def test_a_table_has_a_head_a_rule_and_rows():
    assert report.markdown(["set", "s"], [["a", "1"], ["b", "2"]]).splitlines() == [
        "| set | s |",
        "|---|---|",
        "| a | 1 |",
        "| b | 2 |",
    ]


def test_results_are_written_with_the_machine_and_the_settings(tmp_path):
    path = tmp_path / "out.json"
    report.write(path, [{"ms": 1.5}], rounds=3)
    content = json.loads(path.read_text())
    assert content["results"] == [{"ms": 1.5}]
    assert content["about"]["rounds"] == 3 and content["about"]["cores"] > 0


def test_without_a_path_nothing_is_written(tmp_path):
    report.write(None, [])
    report.write_runs(None, {})
    assert list(tmp_path.iterdir()) == []
