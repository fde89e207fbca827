"""The table of runs, the settings in which they differ, and what is wrong with a directory."""

import pytest
from msgspec.structs import replace

from hogbatch.cli.status import runs
from hogbatch.errors import UsageError
from hogbatch.views.status.listing import as_flag, differing, listed_runs, table_lines
from tests.support.run_events import (
    GONE,
    TRAINING,
    ended,
    evaluation,
    joined,
    lease,
    ready,
    started,
)

SETTINGS = 'data = "a9a"\nhidden = [512, 512]\npin = true\nlr = 0.1\nquiet = false\n'
OTHERS = 'data = "w 8a"\nhidden = []\npin = false\nquiet = true\n'


def finished(loss, seconds, rows=1000):
    """The events of a run after its start."""
    return (
        *(joined(), ready(), lease(seconds, 0, rows), evaluation(seconds, rows, loss)),
        ended(seconds=seconds, epochs=1.0, rows=rows),
    )


@pytest.fixture
def three(write_run, tmp_path):
    """Three runs, the newest first: "c" (killed), "b" and "a"."""
    write_run(started(), *finished(0.3, 4.0), name="a", config=SETTINGS)
    later = replace(started(), at=started().at + 100)
    write_run(later, *finished(0.4, 1.0), name="b", config=OTHERS)
    last = replace(started(process=GONE), at=started().at + 200)
    write_run(last, *TRAINING[1:5], evaluation(2.0, 1000, 0.35), name="c", config=SETTINGS)
    (tmp_path / "other").mkdir()
    (tmp_path / "file").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("order", "names"), [("newest", "cba"), ("loss", "acb"), ("time", "bca"), ("loss", "a")]
)
def test_the_order_of_runs(three, order, names):
    found = listed_runs(three, order, len(names))
    assert "".join(run["run_dir"][-1] for run in found) == names


def test_equal_settings_are_not_shown(three):
    lines = table_lines(listed_runs(three, "newest", None), 80)
    assert lines[0].split() == ["run", "state", "metric", "validation", "seconds", "rows/s"]
    assert lines[1].split() == ["c", "killed?", "accuracy", "0.8000", "0.3500", "2.00", "500"]
    assert lines[2].endswith("  cpu:2  a9a  --hidden 512,512  --pin  --lr 0.1")
    assert lines[3].split() == ["b", "finished", "accuracy", "0.8000", "0.4000", "1.00", "1,000"]
    assert lines[4].endswith("  'w 8a'  --hidden ''  --no-pin")
    alike = listed_runs(three, "loss", 2)
    assert not any("--" in line or "a9a" in line for line in table_lines(alike, 80))
    settings = listed_runs(three, "newest", None)[1]["settings"]
    assert settings.keys() == {"data", "hidden", "pin", "lr"} and settings["lr"] is None


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"config": "a = = b"}, "config.toml: the file is damaged"),
        ({"run": "[]"}, "run.json: expected a list of a run's files"),
    ],
)
def test_a_damaged_run_is_listed_with_the_reason(write_run, three, files, problem):
    path = write_run(started(), *finished(0.1, 1.0), name="damaged", **files)
    found = listed_runs(three, "newest", None)
    assert any(run["run_dir"] == str(path) and problem in run["problem"] for run in found)
    assert any(line.startswith("    damaged: ") for line in table_lines(found, 80))


def test_the_table_fits_into_80_columns(write_run, tmp_path):
    long = "hidden = [" + "512, " * 30 + "1]\n"
    name = "20261123-120000-a9a-a1b2"
    write_run(started(), *finished(123.4567, 98765.43), name=name, config=long)
    write_run(started(), name="b", config="x" * 99)
    lines = table_lines(listed_runs(tmp_path, "newest", None), 80)
    assert max(map(len, lines)) <= 80


def test_settings_that_do_not_change_a_run_are_not_compared():
    assert differing([{"quiet": True, "lr": 1}, {"quiet": False, "lr": 1}]) == []
    assert differing([{"lr": 1}, {}]) == ["lr"]
    assert differing([]) == []
    assert (as_flag("pin", False), as_flag("hidden", [3, 4])) == ("--no-pin", "--hidden 3,4")


@pytest.mark.parametrize("text", ["0", "-1", "1.5"])
def test_a_limit_is_a_positive_number(text):
    with pytest.raises(UsageError, match="limit: expected a whole number from 1 to 1000000; got '"):
        runs(["--limit", text])


def test_a_directory_that_has_no_runs_is_named_with_advice(three):
    for name, found in (("gone", "does not exist"), ("file", "is a file"), ("a", "is a run dir")):
        with pytest.raises(UsageError, match=f"^{three}/{name} {found}.*; expected a directory "):
            listed_runs(three / name, "newest", None)
    assert listed_runs(three / "other", "newest", None) == []


def test_a_path_is_quoted_in_the_suggested_command(write_run):
    run_dir = write_run(name="my run")
    with pytest.raises(UsageError, match=f"; hogbatch status '{run_dir}' shows it"):
        listed_runs(run_dir, "newest", None)
