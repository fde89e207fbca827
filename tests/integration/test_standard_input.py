"""DATA from standard input or a pipe; more than fits into memory is refused in one sentence."""

import gzip
import os
import subprocess
import sys

import numpy as np
import pytest

import hogbatch
from tests.support.fault_injection import WITHIN_S, cli
from tests.support.memory_cgroup import memory_cgroup
from tests.support.other_user import as_root

ROWS = "".join(f"{i % 7},{i % 3},{int(i % 7 > i % 3)}\n" for i in range(200))
TABLE = "a,b,y\n" + ROWS
FLAGS = ("--epochs", 1, "--hidden", 8, "--deterministic")


@pytest.fixture
def piped(main):
    """Run one hogbatch command in this process with less than 64 kB of standard input."""

    def run(content, *arguments, cwd=None):
        own, (reads, writes) = os.dup(0), os.pipe()
        os.write(writes, content)
        os.close(writes)
        os.dup2(reads, 0)
        try:
            return main(*arguments, cwd=cwd)
        finally:
            os.dup2(own, 0)
            os.close(own)
            os.close(reads)

    return run


def test_standard_input_is_a_file_like_any_other(tmp_path, main, piped):
    (tmp_path / "x.csv").write_text(TABLE)
    done = main("train", "x.csv", *FLAGS, "--run-dir", "file", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = cli("train", "-", *FLAGS, cwd=tmp_path, input=TABLE)
    assert done.returncode == 0, done.stderr
    [run] = (tmp_path / "runs").iterdir()
    assert "-stdin-" in run.name
    assert 'data = "-"\n' in (run / "config.toml").read_text()
    assert "standard input: 110 training rows, 50 validation rows" in done.stdout
    model = run / "model.safetensors"

    told = main("evaluate", tmp_path / "file" / model.name, "x.csv", cwd=tmp_path).stdout
    assert "rows 200\n" in told
    for data, content in (
        ("-", TABLE.encode()),
        ("/dev/stdin", gzip.compress(TABLE.encode())),
        ("/dev/fd/0", TABLE.encode()),
    ):
        done = piped(content, "evaluate", model, data)
        assert (done.stdout, done.stderr) == (told, "")
    done = piped(TABLE.encode() + b"1,oops,0\n", "predict", model, "-")
    assert done.returncode == 2
    assert done.stderr.startswith("hogbatch: standard input:202: ")

    again = ("train", "--resume", run, "--epochs", 2)
    done = piped(b"", *again)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "hogbatch: standard input is empty" in done.stderr
    done = piped(TABLE[:-60].encode(), *again)
    assert done.returncode == 2
    assert "cannot be resumed: its data is '110 rows" in done.stderr
    done = piped(TABLE.encode(), *again)
    assert done.returncode == 0, done.stderr


def test_the_test_set_may_come_from_standard_input(tmp_path, piped):
    (tmp_path / "x.csv").write_text(TABLE)
    done = piped(ROWS.encode(), "train", "x.csv", "--test", "-", *FLAGS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "150 training rows, 50 validation rows, 200 test rows" in done.stdout


READ = """
import os, sys
with open(sys.argv[1] + "/cgroup.procs", "w") as procs:
    procs.write(str(os.getpid()))
from hogbatch.cli.main import main
sys.exit(main(["evaluate", sys.argv[2], sys.argv[3]]))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    (folder / "x.csv").write_text(TABLE)
    flags = {"epochs": 1, "hidden": (8,), "quiet": True}
    hogbatch.train(folder / "x.csv", run_dir=folder / "run", **flags)
    return folder / "run" / "model.safetensors"


def packed_table(path):
    path.write_bytes(gzip.compress(b"1,2,1\n" * 15_000_000, 1))
    return path


def archive(path):
    np.savez_compressed(path.with_suffix(".npz"), X=np.zeros((10**5, 10**3), np.float32))
    return path.with_suffix(".npz")


@as_root
@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (packed_table, "of free memory for the rows of "),
        (archive, "of free memory for the arrays of "),
        (None, "of free memory for standard input, after "),
    ],
    ids=["CSV in gzip", "npz", "a stream without an end"],
)
def test_more_data_than_memory_is_one_sentence_and_not_the_oom_killer(
    tmp_path, model, make, sentence
):
    data = "-" if make is None else make(tmp_path / "data")
    with (
        memory_cgroup(300 << 20) as group,
        subprocess.Popen(["yes", "1,2,1"], stdout=-1) as endless,
    ):
        ran = subprocess.run(
            [sys.executable, "-c", READ, group, model, data],
            stdin=endless.stdout,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
        )
        endless.kill()
    assert ran.returncode == 2, ran.stderr
    assert sentence in ran.stderr
    assert ran.stderr.startswith("hogbatch: ") and ran.stderr.count("\n") == 1
