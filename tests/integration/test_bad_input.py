"""Unusable input is refused with exit code 2 and one sentence that names the place."""

import itertools
import os

import pytest

import hogbatch
from tests.support.fault_injection import cli

GOOD = "+1 1:0.5 3:1\n-1 2:0.25\n" * 20
CSV = "a,b,y\n1,2,0\n3,4,1\n"

FILES = {  # name of the case: files to write, arguments, what the sentence must hold
    "a missing file": ({}, ["gone.svm"], "no such file: gone.svm"),
    "a folder": ({}, ["."], "."),
    "a letter for a value": ({"x.svm": GOOD + "+1 1:a\n"}, ["x.svm"], "x.svm:41:6: "),
    "index 0 in a test set whose training set counts from 1": (
        {"x.svm": GOOD, "t.svm": GOOD + "+1 0:1\n"},
        ["x.svm", "--test", "t.svm"],
        "t.svm:41:4: feature index 0",
    ),
    "more features than there are to be": (
        {"x.svm": GOOD + "+1 4:1\n"},
        ["x.svm", "--features", "3"],
        "x.svm:41:4: feature index 4; expected at most 3 (--features 3, from 1)",
    ),
    "columns of a file without columns": (
        {"x.svm": GOOD},
        ["x.svm", "--text", "a"],
        "x.svm: --drop, --categorical, --numeric and --text name columns; expected a CSV",
    ),
    "a loss that does not suit the labels": (
        {"x.csv": "a,y\n1,1.5\n2,2.5\n3,3.5\n"},
        ["x.csv", "--loss", "softmax"],
        "x.csv:2: ",
    ),
    "a run directory that is a file": ({"f": ""}, ["a9a", "--run-dir", "f"], "f as run directory"),
    "no data": ({}, [], "DATA is missing"),
    "an unknown flag": ({}, ["a9a", "--scales"], "'--scales'; the nearest flag is --scale"),
    "a policy that cannot be imported": ({}, ["a9a", "--policy", "gone:Away"], "gone:Away"),
}


def assert_refused(done, sentence):
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr and done.stderr.startswith("hogbatch")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert sentence in done.stderr


@pytest.mark.parametrize("case", FILES)
def test_a_bad_file_is_refused(main, case, tmp_path):
    files, arguments, sentence = FILES[case]
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    assert_refused(main("train", "--epochs", 1, *arguments, cwd=tmp_path), sentence)
    left = {path.name for path in tmp_path.rglob("*")} - files.keys()
    assert left <= {"runs"}, "no run directory was made for nothing"


def test_a_refusal_is_the_same_in_a_process(tmp_path):
    assert_refused(cli("train", "gone.svm", cwd=tmp_path), "no such file: gone.svm")


def test_a_few_bad_lines_are_said_and_left_out(main, tmp_path):
    bad = b"+1 1:a\r\n-1 2:1 2:2\n\xff\xfe 1:1\n" + b"+1 3:nan\n" * 20
    good = GOOD.encode() * 50
    (tmp_path / "bad.svm").write_bytes(good + bad + good)
    flags = ("--bad-lines", 0.01, "--epochs", 1, "--hidden", 4, "--run-dir", "run")
    done = main("train", "bad.svm", *flags, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if "bad.svm:" in line]
    assert said[0] == ("bad.svm: 23 of 4023 lines skipped (0.57%); the first 20 are:")
    assert said[1] == "  bad.svm:2001:6: expected a number; got 'a'"
    assert said[2] == "  bad.svm:2002:8: feature index 2 occurs twice in one row"
    assert said[3].startswith("  bad.svm:2003:1: expected a number")
    assert sum("float32; got 'nan'" in line for line in said) == 17


def truncate(path):
    os.truncate(path, 100)


def overwrite(path):
    path.write_text("-1 1:9\n" * 999)


def replace_it(path):
    path.with_name("other").write_text("no data\n" * 99)
    os.replace(path.with_name("other"), path)


def test_what_happens_to_the_file_while_training_changes_nothing(tmp_path):
    path = tmp_path / "x.svm"
    changes = [truncate, overwrite, replace_it, os.unlink]
    models = []
    for name in ("undisturbed", "disturbed"):
        path.write_text(GOOD * 50)
        left = iter(changes if name == "disturbed" else ())

        def disturb(evaluation, left=left):
            for change in itertools.islice(left, 1):
                change(path)

        settings = {"epochs": len(changes) + 2, "hidden": (32,), "keep": "last", "quiet": True}
        run = hogbatch.train(
            path,
            run_dir=tmp_path / name,
            deterministic=True,
            on_evaluation=disturb,  # after each epoch
            **settings,
        )
        assert len(run.summary["history"]) == len(changes) + 2
        models.append((run.run_dir / "model.safetensors").read_bytes())
    assert not path.exists(), "all changes were made"
    assert models[0] == models[1]


@pytest.mark.parametrize("arguments", [["frobnicate"], ["worker"], ["worker", "tpu"]])
def test_a_command_that_does_not_exist_is_refused(main, arguments):
    assert_refused(main(*arguments), "expected" if arguments == ["frobnicate"] else "expects")


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_a_worker_needs_a_run_directory_with_a_coordinator(kind, tmp_path):
    assert_refused(cli("worker", kind, tmp_path / "gone"), "gone is not a run directory")
    (tmp_path / "coordinator.json").touch()
    assert_refused(cli("worker", kind, tmp_path), "no coordinator is running in")
