"""The report as text and as JSON."""

import json

from hogbatch.cli.doctor.checks import Verdict
from hogbatch.cli.doctor.command import to_json, to_text

VERDICTS = {
    "processor": Verdict("EPYC"),
    "memory": Verdict("unknown: no file", known=False),
    "huge pages": Verdict("small\x1b[31m", "allow them"),
}


def test_the_report_has_a_line_for_each_check_with_advice_below():
    assert to_text("hogbatch 0.1.0", VERDICTS).splitlines() == [
        "hogbatch 0.1.0",
        "",
        "ok    processor   EPYC",
        "?     memory      unknown: no file",
        r"warn  huge pages  small\x1b[31m",
        "                  allow them",
        "",
        "1 warning",
    ]
    assert to_text("hogbatch 0.1.0", {"processor": Verdict("EPYC")}).endswith("\n\nno warnings")


def test_json_has_all_checks_and_versions():
    found = json.loads(to_json({"numba": "0.62.0", "scipy": None}, VERDICTS))
    assert found["versions"] == {"numba": "0.62.0", "scipy": None}
    assert [each["status"] for each in found["checks"]] == ["ok", "unknown", "warn"]
    assert found["checks"][2] == {
        "name": "huge pages",
        "status": "warn",
        "value": "small\x1b[31m",
        "advice": "allow them",
    }
