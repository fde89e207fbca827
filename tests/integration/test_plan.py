"""`hogbatch plan` on a real run."""

import json

import pytest

from hogbatch.model.file import load_model

ROWS_PER_SECOND = 200_000


@pytest.fixture
def planned(finished_job):
    """The run directory of a finished run, with the same speed on every machine."""
    path = finished_job.run_dir / "summary.json"
    summary = json.loads(path.read_text())
    path.write_text(json.dumps(summary | {"train_seconds": summary["rows"] / ROWS_PER_SECOND}))
    return finished_job.run_dir


def test_the_plan_is_that_of_the_run(planned, main):
    done = main("plan", planned, "--servers", "2,100", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    model = load_model(planned / "model.safetensors")
    assert found["parameters"] == sum(each.size for each in model.tensors.values())
    assert found["rows"] == 32_561
    assert found["rows_per_second"] == pytest.approx(ROWS_PER_SECOND)
    two, hundred = found["plans"]
    assert two["sent_bytes"] == 4 * found["parameters"]
    assert two["seconds_between_merges"] == pytest.approx(50 * hundred["seconds_between_merges"])
    assert found["most_servers"] < 100 < hundred["share"] * 1000


def test_a_slow_link_allows_fewer_servers(planned, main):
    plans = [
        json.loads(main("plan", planned, "--gbit", gbit, "--json").stdout)
        for gbit in ("0.1", "100")
    ]
    assert plans[0]["most_servers"] < plans[1]["most_servers"]


def test_the_table_has_a_line_for_each_number_of_servers(planned, main):
    lines = main("plan", planned, "--servers", "3,5").stdout.splitlines()
    assert [line.split()[0] for line in lines if line[:7].strip().isdigit()] == ["3", "5"]
    assert "predicted" in lines[2]
    assert "80 % (lemma 1" in lines[-2] and "of 5 servers (lemma 2" in lines[-1]


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
def test_numbers_that_make_no_sense_are_refused(planned, main, flags, got):
    done = main("plan", planned, *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and flags[0] in done.stderr and got in done.stderr


def test_a_directory_that_is_not_a_run_is_refused(tmp_path, main):
    done = main("plan", tmp_path)
    assert done.returncode == 2 and "is not a run directory" in done.stderr


def test_a_run_without_results_is_refused(finished_job, main):
    (finished_job.run_dir / "summary.json").unlink()
    done = main("plan", finished_job.run_dir)
    assert done.returncode == 2 and "has no results yet" in done.stderr


PROBLEM = {"--network": "54,512,512,7", "--rows": "464810", "--rows-per-second": "1e5"}


def flags_of(problem):
    return [text for pair in problem.items() for text in pair]


def test_a_problem_is_planned_without_a_run(main):
    done = main("plan", *flags_of(PROBLEM), "--servers", "2,100", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["parameters"] == 55 * 512 + 513 * 512 + 513 * 7
    assert (found["rows"], found["rows_per_second"]) == (464_810, 100_000)
    assert [each["possible"] for each in found["plans"]] == [True, False]
    said = main("plan", *flags_of(PROBLEM)).stdout
    assert "With 100 servers, merging cannot take at most 10 % of the time" in said


def test_a_run_and_its_figures_have_one_plan(planned, main):
    of_run = json.loads(main("plan", planned, "--json").stdout)
    sizes = (of_run["parameters"] - 1, 1)  # as many parameters
    problem = {
        "--network": ",".join(map(str, sizes)),
        "--rows": of_run["rows"],
        "--rows-per-second": of_run["rows_per_second"],
    }
    assert json.loads(main("plan", *flags_of(problem), "--json").stdout) == of_run


@pytest.mark.parametrize("flag", PROBLEM)
def test_a_run_and_a_problem_exclude_each_other(planned, main, flag):
    done = main("plan", planned, flag, PROBLEM[flag])
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert f"expected either RUN_DIR or --network, --rows, --rows-per-second; got {flag}" in (
        done.stderr
    )


@pytest.mark.parametrize("flag", PROBLEM)
def test_a_part_of_a_problem_is_not_enough(main, flag):
    part = {name: value for name, value in PROBLEM.items() if name != flag}
    done = main("plan", *flags_of(part))
    assert done.returncode == 2 and f"; {flag} must be given, too" in done.stderr
    done = main("plan")
    assert done.returncode == 2 and "expected RUN_DIR, or all of --network, " in done.stderr


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        *(("--network", each) for each in ("54", "54,0,7", "54,x", "", "54,-1", "9,4294967296")),
        *(("--rows", each) for each in ("0", "1.5", "many")),
        *(("--rows-per-second", each) for each in ("0", "inf", "fast")),
    ],
)
def test_a_problem_that_makes_no_sense_is_refused(main, flag, value):
    done = main("plan", *flags_of(PROBLEM | {flag: value}))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and flag in done.stderr and repr(value) in done.stderr
