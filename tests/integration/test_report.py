"""`hogbatch report` on real runs, and the files that it may write."""

import json
import shutil
import subprocess
import sys
import tomllib

import pytest

import hogbatch
from hogbatch.events.event import Started
from tests.unit.views.report.test_page import ParsedPage


@pytest.fixture
def report(main):
    """Write a report; return the parsed file."""

    def call(*arguments, path):
        done = main("report", *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"report: {path} (")
        content = path.read_text()
        assert len(content) < 200_000 and "://" not in content
        return ParsedPage(content)

    return call


def test_a_finished_run_has_a_complete_report(finished_job, report):
    run_dir = finished_job.run_dir
    page = report(run_dir, path=run_dir / "report.html")
    summary = json.loads((run_dir / "summary.json").read_text())
    assert f"validation {summary['validation']['loss']:.4f}" in page.text
    assert f"loss {summary['test']['loss']:.4f}" in page.text
    assert "finished: all epochs" in page.text and "cpu-0 is ready" in page.text
    assert "of 16,281 test rows are predicted correctly" in page.text
    correct = page.text.partition(" of 16,281 test rows are")[0].split()[-1].replace(",", "")
    assert int(correct) / 16_281 == pytest.approx(summary["test"]["value"], abs=1e-6)
    assert "Calibration on the test set" in page.text
    environment = finished_job.wait_for_event(Started).environment
    assert environment["versions"]["numba"] in page.text
    assert environment["processor"] in page.text
    settings = tomllib.loads((run_dir / "config.toml").read_text())
    assert all(key in page.text for key in settings)


def test_several_runs_are_side_by_side(finished_run, main, tmp_path, report, monkeypatch):
    other = tmp_path / "other"
    shutil.copytree(finished_run, other)
    text = (other / "config.toml").read_text()
    (other / "config.toml").write_text(text.replace("seed = 0", "seed = 7"))
    monkeypatch.chdir(tmp_path)
    assert main("report", finished_run, other).stdout.startswith("report: report.html (")
    page = ParsedPage((tmp_path / "report.html").read_text())
    assert "2 runs" in page.text and "Settings that differ" in page.text
    assert page.tags.count("details") == 2
    shown = page.text.partition("Settings that differ")[2].partition("Result")[0]
    assert "seed" in shown and "7" in shown and "hidden" not in shown


def test_a_rehearsed_run_has_simulated_times_and_no_environment(tmp_path, main, report):
    run_dir = tmp_path / "run"
    flags = ("--server", "laptop-8cores", "--hidden", 16, "--epochs", 1, "--run-dir", run_dir)
    assert main("rehearse", "a9a", *flags).returncode == 0
    page = report(run_dir, path=run_dir / "report.html")
    assert "rehearsed on laptop-8cores: all times are simulated" in page.text
    assert "The run has not recorded its environment." in page.text
    assert "simulated time" in page.text and "time (UTC)" not in page.text


def classes_file(path, shift=0.0):
    rows = "".join(f"{n % 3 + 1},{n % 3 + shift * (n % 5)},{n % 7}\n" for n in range(300))
    path.write_text("label,a,b\n" + rows)


def test_data_that_have_changed_are_not_evaluated(tmp_path, report):
    data, run_dir = tmp_path / "rows.csv", tmp_path / "run"
    classes_file(data)
    settings = {"label": "label", "hidden": (4,), "epochs": 2, "recipe": "fast", "quiet": True}
    hogbatch.train(data, run_dir=run_dir, **settings)
    path = run_dir / "report.html"
    assert "test rows are predicted correctly" in report(run_dir, path=path).text
    classes_file(data, shift=0.25)
    assert "the data are not those of the run any more" in report(run_dir, path=path).text
    data.write_text("a,b\n")
    assert "Left out: " in report(run_dir, path=path).text
    data.unlink()
    assert f"Left out: {data} is no longer there." in report(run_dir, path=path).text
    (run_dir / "model.safetensors").unlink()
    assert "the run has not saved a model" in report(run_dir, path=path).text


def test_a_report_belongs_to_the_run_directory(finished_job, main):
    run_dir = finished_job.run_dir
    assert main("report", run_dir).returncode == 0
    assert "report.html" in json.loads((run_dir / "run.json").read_text())["files"]
    assert main("report", run_dir).returncode == 0, "an earlier report is replaced"
    flags = ("--hidden", 8, "--epochs", 1, "--overwrite", "--run-dir", run_dir)
    assert main("train", "a9a", *flags).returncode == 0
    assert not (run_dir / "report.html").exists(), "it was that of the earlier run"
    assert (run_dir / "previous-run" / "report.html").exists()


@pytest.mark.parametrize("content", ["", "<!doctype html><p>mine"])
def test_another_file_is_not_replaced(finished_job, main, content):
    path = finished_job.run_dir / "report.html"
    path.write_text(content)
    done = main("report", finished_job.run_dir)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{path} exists and is not a report of hogbatch; give another" in done.stderr
    assert done.stderr.count("\n") == 1 and path.read_text() == content
    output = finished_job.folder / "mine.html"
    assert main("report", finished_job.run_dir, "--output", output).returncode == 0
    assert path.read_text() == content and output.exists()


def test_wrong_arguments_are_one_sentence(finished_run, main, tmp_path):
    (tmp_path / "link.html").symlink_to(tmp_path / "target")
    for arguments, words in (
        ((tmp_path,), "is not a run directory"),
        ((tmp_path / "gone",), "does not exist"),
        ((), "required"),
        ([finished_run] * 25, "expected at most 24 run directories; got 25"),
        ((finished_run, "--output", tmp_path), "exists and is not a report"),
        ((finished_run, "--output", tmp_path / "link.html"), "exists and is not a report"),
        ((finished_run, "--output", tmp_path / "no" / "x.html"), "cannot write the report"),
    ):
        done = main("report", *arguments, cwd=tmp_path)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert words in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.html"]


def test_the_users_settings_of_matplotlib_do_not_matter(finished_run, tmp_path, monkeypatch):
    (tmp_path / "matplotlibrc").write_text("axes.grid: sometimes\nno.such.setting: 1\n")
    monkeypatch.setenv("MPLBACKEND", "none")
    command = [sys.executable, "-m", "hogbatch.cli.main", "report", finished_run]
    flags = ["--output", "made.html"]
    done = subprocess.run([*command, *flags], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_matplotlib_nothing_is_written(finished_run, main, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in [each for each in sys.modules if each.startswith("hogbatch.views.report")]:
        monkeypatch.delitem(sys.modules, name)
    done = main("report", finished_run)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "a report needs the package matplotlib" in done.stderr
    assert "pip install 'hogbatch[report]'" in done.stderr


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"loss": "squared"}, ("rmse of the mean", "Predicted against true", "Residuals")),
        (
            {},
            (
                "predicts worst on the test set",
                "of each of 30 classes",
                "most often predicted instead",
            ),
        ),
    ],
)
def test_numbers_and_many_classes_have_a_quality(tmp_path, report, settings, words):
    rows = "".join(f"{n % 30},{n % 30 + n % 2},{n % 7 or ''},5\n" for n in range(1500))
    (tmp_path / "rows.csv").write_text("label,a,b,c\n" + rows)
    usual = {"label": "label", "hidden": (4,), "epochs": 1, "verbose": False}
    run_dir = tmp_path / "run"
    hogbatch.train(tmp_path / "rows.csv", run_dir=run_dir, **usual | settings)
    page = report(run_dir, path=run_dir / "report.html")
    of_columns = (
        "Columns of the training data",
        "constant",
        "missing cells",
        "Importance of columns",
    )
    for each in (*words, *of_columns):
        assert each in page.text
