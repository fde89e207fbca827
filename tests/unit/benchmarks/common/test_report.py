import json

from benchmarks.common import report


def test_results_are_written_with_the_machine_and_the_settings(tmp_path):
    path = tmp_path / "out.json"
    report.write(path, [{"ms": 1.5}], rounds=3)
    content = json.loads(path.read_text())
    assert content["results"] == [{"ms": 1.5}]
    assert content["about"]["rounds"] == 3 and content["about"]["cores"] > 0
