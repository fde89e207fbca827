"""`hogbatch plan` on a real run."""

import json

import pytest

from hogbatch.model.file import load_model


def test_the_plan_is_that_of_the_run(finished_run, main):
    done = main("plan", finished_run, "--servers", "2,100", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found, summary = (
        json.loads(text) for text in (done.stdout, (finished_run / "summary.json").read_text())
    )
    model = load_model(finished_run / "model.safetensors")
    assert found["parameters"] == sum(each.size for each in model.tensors.values())
    assert found["rows"] == 32_561
    assert found["rows_per_second"] == pytest.approx(summary["rows"] / summary["train_seconds"])
    two, hundred = found["plans"]
    assert two["sent_bytes"] == 4 * found["parameters"]
    assert two["seconds_between_merges"] == pytest.approx(50 * hundred["seconds_between_merges"])
    assert found["most_servers"] < 100 < hundred["share"] * 1000


def test_a_slow_link_allows_fewer_servers(finished_run, main):
    plans = [
        json.loads(main("plan", finished_run, "--gbit", gbit, "--json").stdout)
        for gbit in ("0.1", "100")
    ]
    assert plans[0]["most_servers"] < plans[1]["most_servers"]


def test_the_table_has_a_line_for_each_number_of_servers(finished_run, main):
    lines = main("plan", finished_run, "--servers", "3,5").stdout.splitlines()
    assert [line.split()[0] for line in lines if line[:7].strip().isdigit()] == ["3", "5"]
    assert "predicted" in lines[2] and lines[-1].endswith("80 %.")


@pytest.mark.parametrize(
    ("flags", "got"),
    [
        (("--servers", "1"), "'1'"),
        (("--servers", "two"), "'two'"),
        (("--servers", "5000"), "'5000'"),
        (("--gbit", "0"), "'0'"),
        (("--latency-us", "nan"), "'nan'"),
        (("--share", "-1"), "'-1'"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(finished_run, main, flags, got):
    done = main("plan", finished_run, *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and flags[0] in done.stderr and got in done.stderr


def test_a_directory_that_is_not_a_run_is_refused(tmp_path, main):
    done = main("plan", tmp_path)
    assert done.returncode == 2 and "is not a run directory" in done.stderr


def test_a_run_without_results_is_refused(finished_job, main):
    (finished_job.run_dir / "summary.json").unlink()
    done = main("plan", finished_job.run_dir)
    assert done.returncode == 2 and "has no results yet" in done.stderr
