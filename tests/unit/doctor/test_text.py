"""The report as text and as JSON, and what it leaves out."""

import json

import pytest

from hogbatch.doctor.checks import CHECKS, check
from hogbatch.doctor.facts import CacheFolder, CoreLoad, PrivateNames, Unknown
from hogbatch.doctor.redaction import redact
from hogbatch.doctor.text import to_json, to_text
from tests.support.doctor_facts import HEALTHY, OPEN, with_facts

ALICE = PrivateNames(frozenset({"/home/alice"}), frozenset({"alice"}))
BUSY = with_facts("processor", load=CoreLoad(9.0, 0.0, 16))
SMALL_PAGES = with_facts("memory", huge_pages=False)
COMMAND = "echo advise | sudo tee /sys/kernel/mm/transparent_hugepage/shmem_enabled"


def text_of(facts, names=OPEN, width=None, colour=False):
    return to_text(facts, check(facts), names, width, colour)


def test_every_check_is_one_line_in_its_group():
    lines = text_of(HEALTHY).splitlines()
    assert lines[0] == "hogbatch 0.1.0, CPython 3.12.3, Linux 6.8.0 x86_64"
    assert lines[-1] == "no warnings"
    found = {}
    for line in lines[1:-1]:
        if line and not line.startswith(" "):
            found[line] = []
        elif line:
            assert line.startswith("  ok    ")
            found[list(found)[-1]].append(line[8:23].rstrip())
    assert found == {group: list(checks) for group, checks in CHECKS.items()}


def test_values_are_aligned():
    lines = text_of(HEALTHY).splitlines()
    assert "  ok    model          AMD EPYC 9654" in lines
    assert "  ok    shared memory  memfd; /dev/shm (32 GB) is not used" in lines


@pytest.mark.parametrize(
    ("facts", "start", "summary"),
    [
        (BUSY, "  warn  load           other processes use 9.0", "1 warning"),
        (
            with_facts("processor", governors=Unknown("no file")),
            "  ?     governor       unknown: no file",
            "no warnings",
        ),
    ],
)
def test_warnings_are_counted(facts, start, summary):
    lines = text_of(facts).splitlines()
    assert sum(line.startswith(start) for line in lines) == 1
    assert lines[-1] == summary


def test_long_lines_are_wrapped_for_a_terminal():
    lines = text_of(BUSY, width=80).splitlines()
    assert max(map(len, lines)) <= 80
    first = next(n for n, line in enumerate(lines) if line.startswith("  warn"))
    assert lines[first + 1].startswith(" " * 23) and lines[first + 1][23] != " "


def test_a_command_is_not_broken():
    (line,) = [line for line in text_of(SMALL_PAGES, width=80).splitlines() if "tee" in line]
    assert line.strip() == COMMAND
    assert COMMAND in text_of(SMALL_PAGES)


def test_only_the_status_is_coloured():
    coloured = text_of(BUSY, colour=True)
    assert "\x1b[33mwarn\x1b[0m  load" in coloured
    assert "\x1b[32mok  \x1b[0m  model" in coloured
    assert "\x1b" not in text_of(BUSY)


def test_json_has_all_checks_and_versions():
    found = json.loads(to_json(SMALL_PAGES, check(SMALL_PAGES), OPEN))
    assert set(found) == {"versions", "checks"}
    assert found["versions"]["hogbatch"] == "0.1.0"
    assert found["versions"]["python"] == "CPython 3.12.3"
    assert found["versions"]["numba"] == "0.62.0"
    by_name = {each["name"]: each for each in found["checks"]}
    assert list(by_name) == [name for checks in CHECKS.values() for name in checks]
    assert by_name["huge pages"] == {
        "group": "memory",
        "name": "huge pages",
        "status": "warn",
        "value": 'transparent huge pages of shared memory are "never"',
        "advice": "reading rows of large data takes up to a quarter longer; allow huge pages: "
        + COMMAND,
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/alice/.cache/hogbatch: 3 MB", "~/.cache/hogbatch: 3 MB"),
        ("/home/alice", "~"),
        ("in '/home/alice/x'", "in '~/x'"),
        ("/home/alice2/x", "/home/alice2/x"),
        ("/mnt/home/alice/x", "/mnt/home/USER/x"),
        ("/scratch/alice/cache; full", "/scratch/USER/cache; full"),
        ("/scratch/alice.old", "/scratch/alice.old"),
        ("alice sleeps", "alice sleeps"),
    ],
)
def test_names_of_the_user_are_removed(text, shown):
    assert redact(text, ALICE) == shown


def test_a_home_that_is_the_root_is_kept():
    names = PrivateNames(frozenset({"/"}), frozenset({"root", ""}))
    assert redact("/root/x and /etc", names) == "/root/x and /etc"


def test_both_forms_of_the_report_are_redacted():
    private = CacheFolder("/home/alice/c", 1, 1, True, 10**12, 0)
    facts = with_facts("caches", kernels=private, data=Unknown("/data/alice/x: no"))
    for report in (text_of(facts, ALICE), to_json(facts, check(facts), ALICE)):
        assert "alice" not in report
        assert "~/c: compiled" in report and "/data/USER/x: no" in report


def test_text_of_files_cannot_control_the_terminal():
    assert "\x1b" not in text_of(with_facts("processor", name="a\x1b[31m"))
