"""The report as text and as JSON, and the names that it leaves out."""

import json

import pytest

from hogbatch.cli.doctor.checks import Status, Verdict, ok, warn
from hogbatch.cli.doctor.command import CheckResult, redact, redacted, to_json, to_text

ROWS = [
    CheckResult("processor", "processor", ok("EPYC")),
    CheckResult("processor", "load", Verdict(Status.UNKNOWN, "unknown: no file")),
    CheckResult(
        "memory", "huge pages", warn("small\x1b[31m", "allow them", "echo advise | sudo tee x")
    ),
]


def test_the_report_has_a_line_for_each_check_with_advice_below():
    assert to_text("hogbatch 0.1.0", ROWS).splitlines() == [
        "hogbatch 0.1.0",
        "",
        "processor",
        "  ok    processor   EPYC",
        "  ?     load        unknown: no file",
        "",
        "memory",
        r"  warn  huge pages  small\x1b[31m",
        "                    allow them",
        "                    echo advise | sudo tee x",
        "",
        "1 warning",
    ]
    assert to_text("hogbatch 0.1.0", ROWS[:2]).endswith("\n\nno warnings")


def test_json_has_all_checks_and_versions():
    found = json.loads(to_json({"numba": "0.62.0", "scipy": None}, ROWS))
    assert found["versions"] == {"numba": "0.62.0", "scipy": None}
    assert [each["status"] for each in found["checks"]] == ["ok", "unknown", "warn"]
    assert found["checks"][2] == {
        "group": "memory",
        "name": "huge pages",
        "status": "warn",
        "value": "small\x1b[31m",
        "advice": "allow them: echo advise | sudo tee x",
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/alice/.cache/hogbatch: 3 MB", "~/.cache/hogbatch: 3 MB"),
        ("in '/home/alice'", "in '~'"),
        ("/home/alice2/x", "/home/alice2/x"),
        ("/mnt/home/alice/x", "/mnt/home/USER/x"),
        ("/scratch/alice.old", "/scratch/alice.old"),
        ("alice sleeps", "alice sleeps"),
    ],
)
def test_names_of_the_user_are_removed(text, shown):
    assert redact(text, "/home/alice", "alice") == shown
    assert redacted(warn(text, text), "/home/alice", "alice") == warn(shown, shown)
    assert redact("/root/x and /etc", "/", "root") == "/root/x and /etc"
