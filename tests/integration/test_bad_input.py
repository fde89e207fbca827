"""Unusable input is refused with exit code 2 and one sentence that names the place."""

import itertools
import os

import pytest
from safetensors.numpy import load_file

import hogbatch
from hogbatch.kernels.gpu.probe import find_gpus
from tests.support.fault_injection import cli

GOOD = "+1 1:0.5 3:1\n-1 2:0.25\n" * 20
CSV = "a,b,y\n1,2,0\n3,4,1\n"
FLAGS = ("--workers", "cpu:1", "--epochs", "1")

FILES = {  # name of the case: files to write, arguments, what the sentence must hold
    "a missing file": ({}, ["gone.svm"], "no such file: gone.svm"),
    "an empty file": ({"x.svm": ""}, ["x.svm"], "x.svm is empty"),
    "a folder": ({}, ["."], "."),
    "a letter for a value": (
        {"x.svm": GOOD + "+1 1:a\n"},
        ["x.svm"],
        "x.svm:41:6: ",
    ),
    "a negative index": ({"x.svm": GOOD + "+1 -3:1\n"}, ["x.svm"], "x.svm:41:4: "),
    "nan as a value": ({"x.svm": GOOD + "+1 3:nan\n"}, ["x.svm"], "x.svm:41:6: "),
    "a value beyond float": ({"x.svm": GOOD + "+1 3:1e400\n"}, ["x.svm"], "x.svm:41:6: "),
    "a value beyond float32": ({"x.svm": GOOD + "+1 3:1e39\n"}, ["x.svm"], "x.svm:41:6: "),
    "index 0 in a test set whose training set counts from 1": (
        {"x.svm": GOOD, "t.svm": GOOD + "+1 0:1\n"},
        ["x.svm", "--test", "t.svm"],
        "t.svm:41:4: feature index 0",
    ),
    "a test set with more features": (
        {"x.csv": CSV, "t.csv": "1,2,3,0\n"},
        ["x.csv", "--test", "t.csv"],
        "t.csv:1: more features",
    ),
    "a test set that lacks a feature": (
        {"x.csv": CSV, "t.csv": "a,y\n1,0\n"},
        ["x.csv", "--test", "t.csv"],
        "t.csv:1: expected the 2 features of the training data as columns, in any order; got no "
        "column 'b'",
    ),
    "more features than there are to be": (
        {"x.svm": GOOD + "+1 4:1\n"},
        ["x.svm", "--features", "3"],
        "x.svm:41:4: feature index 4; expected at most 3 (--features 3, from 1)",
    ),
    "one word in a column of numbers": (
        {"x.csv": "a,b,y\n" + "1,2,0\n3,4,1\n" * 600 + "1,x,0\n"},
        ["x.csv"],
        "x.csv:1202:3: column 1 (b): expected a number; got 'x'; if it is a category, use "
        "--categorical b",
    ),
    "one word in a column of numbers, in a table": (
        {"x.csv": "a,b,y\n" + "u,2,0\nv,4,1\n" * 30 + "u,x,0\n"},
        ["x.csv"],
        "x.csv:62: column 'b': expected a number; got 'x'; if it is a category, use "
        "--categorical b",
    ),
    "no labels": (
        {"x.csv": "a,b,y\n" + "u,2,\nv,4,NA\n" * 30},
        ["x.csv"],
        "x.csv: expected labels in column 'y'; got none in any row",
    ),
    "the same label in every line": (
        {"x.csv": "5.1,setosa\n4.9,setosa\n"},
        ["x.csv"],
        "x.csv: every label is 'setosa'; expected at least two distinct labels",
    ),
    "a column that does not exist": (
        {"x.csv": CSV},
        ["x.csv", "--drop", "c"],
        "x.csv has no column 'c': its columns are a, b, y",
    ),
    "columns of a file without columns": (
        {"x.svm": GOOD},
        ["x.svm", "--text", "a"],
        "x.svm: --drop, --categorical, --numeric and --text name columns; expected a CSV",
    ),
    "a damaged Parquet file": (
        {"x.parquet": "PAR1 and no more"},
        ["x.parquet"],
        "x.parquet: not an intact Parquet, Arrow or Feather file: ",
    ),
    "a test set with other labels": (
        {"x.svm": GOOD, "t.svm": GOOD + "3 1:1\n"},
        ["x.svm", "--test", "t.svm"],
        "t.svm:41: label 3",
    ),
    "more bad lines than allowed": (
        {"x.svm": GOOD + "+1 1:a\n+1 0:\n"},
        ["x.svm", "--bad-lines", "0.02"],
        "x.svm: 2 of 42 lines (4.76%) are malformed, more than --bad-lines 0.02 "
        "allows: x.svm:41:6: expected a number; got 'a'; x.svm:42:6: expected a number; got ''",
    ),
    "a test set with more bad lines than allowed": (
        {"x.svm": GOOD, "t.svm": "+1 0:1\n+1 1:1\n"},
        ["x.svm", "--test", "t.svm", "--bad-lines", "0.1"],
        "t.svm: 1 of 2 lines (50.00%) are malformed",
    ),
    "a header that is bad, however many lines may be": (
        {"x.xmc": "2 3\n1 1:1\n2 2:1\n"},
        ["x.xmc", "--bad-lines", "1"],
        "x.xmc:1:1: expected the header",
    ),
    "the flag that --scale has replaced": (
        {"x.svm": GOOD},
        ["x.svm", "--standardize"],
        "unknown argument '--standardize'; the nearest flag is --scale",
    ),
    "a ragged table": ({"x.csv": CSV + "1,2\n"}, ["x.csv"], "x.csv:4:4: "),
    "an infinite number in a table": (
        {"x.csv": CSV + "1,inf,0\n"},
        ["x.csv"],
        "x.csv:4: column 'b': expected a finite number; got inf; correct the row, or leave the row "
        "out with --bad-lines 0.334",
    ),
    "a label column that does not exist": (
        {"x.csv": CSV},
        ["x.csv", "--label", "price"],
        "no label column 'price'",
    ),
    "a loss that does not suit the labels": (
        {"x.csv": "a,y\n1,1.5\n2,2.5\n3,3.5\n"},
        ["x.csv", "--loss", "softmax"],
        "x.csv:2: ",
    ),
    "no archive of NumPy": ({"x.npz": "text"}, ["x.npz"], "x.npz"),
    "a pickle": ({"x.svm": "(lp0\nI1\na."}, ["x.svm"], "x.svm: expected text or an .npz archive; "),
    "a key that does not exist": (
        {"run.toml": "epoch = 3\n"},
        ["a9a", "--config", "run.toml"],
        "run.toml: unknown key 'epoch'; the nearest is 'epochs'",
    ),
    "a configuration that is no TOML": (
        {"run.toml": "epochs\n"},
        ["a9a", "--config", "run.toml"],
        "run.toml: expected a TOML file",
    ),
    "a value of another type": (
        {"run.toml": 'epochs = "many"\n'},
        ["a9a", "--config", "run.toml"],
        "run.toml: epochs: expected a whole number",
    ),
    "a missing configuration": ({}, ["a9a", "--config", "gone.toml"], "gone.toml: "),
    "a run directory that is a file": ({"f": ""}, ["a9a", "--run-dir", "f"], "f as run directory"),
}
ARGUMENTS = {
    "no data": ([], "DATA is missing"),
    "an unknown flag": (["a9a", "--frobnicate", "3"], "--frobnicate"),
    "a flag without a value": (["a9a", "--epochs"], "--epochs"),
    "an unknown activation": (["a9a", "--activation", "foo"], "activation must be one of relu"),
    "an unknown policy": (["a9a", "--policy", "foo"], "policy must be one of adaptive"),
    "a policy that cannot be imported": (["a9a", "--policy", "gone:Away"], "gone:Away"),
    "a policy without methods": (["a9a", "--policy", "types:SimpleNamespace"], "--policy"),
    "an unknown loss": (["a9a", "--loss", "foo"], "loss must be one of auto"),
    "an unknown optimizer": (["a9a", "--optimizer", "foo"], "optimizer must be one of sgd"),
    "reversed limits": (["a9a", "--cpu-batch", "64:1"], "reversed"),
    "a share above 1": (["a9a", "--bad-lines", "1.5"], "bad-lines must be from 0 to 1; got 1.5"),
    "no features": (["a9a", "--features", "0"], "features must be from 1 to 2^31 - 1; got 0"),
    "an unknown word for a header": (["a9a", "--header", "1"], "header must be one of auto, yes"),
    "a width of 0": (["a9a", "--hidden", "16,0"], "hidden must be above 0"),
    "no epochs": (["a9a", "--epochs", "0"], "epochs must be above 0"),
    "a word for a number": (["a9a", "--lr", "fast"], "lr: expected a number; got 'fast'"),
    "a worker that does not exist": (["a9a", "--workers", "tpu:0"], "got 'tpu:0'"),
    "two threads that are to be deterministic": (
        ["a9a", "--deterministic", "--workers", "cpu:2"],
        "deterministic needs workers cpu:1",
    ),
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
    assert_refused(main("train", *FLAGS, *arguments, cwd=tmp_path), sentence)
    left = {path.name for path in tmp_path.rglob("*")} - files.keys()
    assert left <= {"runs"}, "no run directory was made for nothing"


def test_a_refusal_is_the_same_in_a_process(tmp_path):
    _, arguments, sentence = FILES["a missing file"]
    assert_refused(cli("train", *FLAGS, *arguments, cwd=tmp_path), sentence)
    arguments, sentence = ARGUMENTS["an unknown flag"]
    assert_refused(cli("train", *arguments, cwd=tmp_path), sentence)


def test_a_few_bad_lines_are_said_and_left_out(tmp_path):
    bad = b"+1 1:a\r\n-1 2:1 2:2\n\xff\xfe 1:1\n" + b"+1 3:nan\n" * 20
    good = GOOD.encode() * 50
    (tmp_path / "good.svm").write_bytes(good + good)
    (tmp_path / "bad.svm").write_bytes(good + bad + good)
    models = []
    for name in ("good", "bad"):
        flags = ("--bad-lines", 0.01, "--deterministic", "--epochs", 1, "--hidden", 32)
        done = cli("train", f"{name}.svm", *flags, "--run-dir", tmp_path / name, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        models.append(load_file(tmp_path / name / "model.safetensors"))
    said = [line for line in done.stdout.splitlines() if "bad.svm:" in line]
    assert said[0] == ("bad.svm: 23 of 4023 lines skipped (0.57%); the first 20 are:")
    assert said[1] == "  bad.svm:2001:6: expected a number; got 'a'"
    assert said[2] == "  bad.svm:2002:8: feature index 2 occurs twice in one row"
    assert said[3].startswith("  bad.svm:2003:1: expected a number")
    assert sum("float32; got 'nan'" in line for line in said) == 17
    assert all((models[0][name] == models[1][name]).all() for name in models[0])


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

        run = hogbatch.train(
            path,
            run_dir=tmp_path / name,
            on_evaluation=disturb,  # after each epoch
            epochs=len(changes) + 2,
            deterministic=True,
            workers="cpu:1",
            hidden=(32,),
            keep="last",
            quiet=True,
        )
        assert len(run.summary["history"]) == len(changes) + 2
        models.append((run.run_dir / "model.safetensors").read_bytes())
    assert not path.exists(), "all changes were made"
    assert models[0] == models[1]


@pytest.mark.parametrize("case", ARGUMENTS)
def test_a_bad_argument_is_refused(main, case, tmp_path):
    arguments, sentence = ARGUMENTS[case]
    flags = () if "--workers" in arguments or "--deterministic" in arguments else FLAGS[:2]
    assert_refused(main("train", *flags, *arguments, cwd=tmp_path), sentence)
    assert list(tmp_path.iterdir()) == []


def test_a_gpu_that_is_not_there_is_refused(tmp_path):
    if find_gpus().devices:
        pytest.skip("there is a GPU")
    done = cli("train", "a9a", "--workers", "gpu:0", cwd=tmp_path)
    assert_refused(done, "--workers gpu:0: no such GPU")


def test_a_run_directory_that_others_may_enter_is_refused(tmp_path):
    (tmp_path / "run").mkdir(mode=0o755)
    os.chmod(tmp_path / "run", 0o755)  # whatever the umask is
    done = cli("train", "a9a", *FLAGS, "--run-dir", tmp_path / "run")
    assert_refused(done, "got 0755")
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.parametrize("arguments", [["frobnicate"], ["worker"], ["worker", "tpu"]])
def test_a_command_that_does_not_exist_is_refused(arguments):
    assert_refused(cli(*arguments), "expected" if arguments == ["frobnicate"] else "expects")


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_a_worker_needs_a_run_directory_with_a_coordinator(kind, tmp_path):
    assert_refused(cli("worker", kind, tmp_path / "gone"), "gone is not a run directory")
    (tmp_path / "coordinator.json").touch()
    assert_refused(cli("worker", kind, tmp_path), "no coordinator is running in")
