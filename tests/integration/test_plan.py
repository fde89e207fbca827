"""`hogbatch plan` on a real run, and on a problem."""

import json

import pytest

from hogbatch.model.file import load_model

PROBLEM = {"--network": "54,512,512,7", "--rows": "464810", "--rows-per-second": "1e5"}


def flags_of(problem):
    return [text for pair in problem.items() for text in pair]


@pytest.fixture
def plan(main):
    def call(*arguments):
        done = main("plan", *arguments, "--json")
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    return call


def test_a_run_and_its_figures_have_one_plan(finished_run, plan):
    found = plan(finished_run, "--servers", "2,100")
    summary = json.loads((finished_run / "summary.json").read_text())
    tensors = load_model(finished_run / "model.safetensors").tensors.values()
    assert found["parameters"] == sum(each.size for each in tensors)
    assert found["rows"] == 32_561
    assert found["rows_per_second"] == pytest.approx(summary["rows"] / summary["train_seconds"])
    problem = {
        "--network": f"{found['parameters'] - 1},1",  # as many parameters
        "--rows": found["rows"],
        "--rows-per-second": found["rows_per_second"],
    }
    assert plan(*flags_of(problem), "--servers", "2,100") == found
    slow, fast = (plan(finished_run, "--gbit", gbit)["most_servers"] for gbit in ("0.1", "100"))
    assert slow < fast


def test_a_problem_is_planned_without_a_run(main, plan):
    found = plan(*flags_of(PROBLEM), "--servers", "2,100")
    assert found["parameters"] == 55 * 512 + 513 * 512 + 513 * 7
    assert (found["rows"], found["rows_per_second"]) == (464_810, 100_000)
    two, hundred = found["plans"]
    assert (two["possible"], hundred["possible"]) == (True, False)
    assert two["sent_bytes"] == 4 * found["parameters"]
    assert two["seconds_between_merges"] == pytest.approx(50 * hundred["seconds_between_merges"])
    said = main("plan", *flags_of(PROBLEM), "--servers", "3,100").stdout
    lines = said.splitlines()
    assert [line.split()[0] for line in lines if line[:7].strip().isdigit()] == ["3", "100"]
    assert "predicted" in lines[2] and "80 % (lemma 1" in said
    assert "With 100 servers, merging cannot take at most 10 % of the time" in said


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        *(("--servers", each) for each in ("1", "two", "5000")),
        *(("--gbit", "0"), ("--latency-us", "nan"), ("--share", "-1")),
        *(("--network", each) for each in ("54,0,7", "54,x", "", "9,4294967296")),
        *(("--rows", "1.5"), ("--rows-per-second", "inf")),
    ],
)
def test_numbers_that_make_no_sense_are_refused(main, flag, value):
    done = main("plan", *flags_of(PROBLEM | {flag: value}))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and f"argument {flag}: expected" in done.stderr


def test_what_is_no_run_and_no_problem_is_refused(finished_job, main, tmp_path):
    run_dir = finished_job.run_dir
    (run_dir / "summary.json").unlink()
    both = "expected either RUN_DIR or --network, --rows, --rows-per-second; got --rows"
    for arguments, said in (
        ((tmp_path,), "is not a run directory"),
        ((run_dir,), "has no results yet"),
        ((run_dir, "--rows", "9"), both),
        (("--network", "5,1", "--rows", "9"), "; --rows-per-second must be given, too"),
        (flags_of(PROBLEM | {"--network": "54"}), "--network: expected two or more sizes; got 54"),
        ((), "expected RUN_DIR, or all of --network, "),
    ):
        done = main("plan", *arguments)
        assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1
