"""A second run reads text from the cache, with the same results as the first."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import hogbatch
from hogbatch.data import text
from hogbatch.data.cache import DataCache
from hogbatch.run import setup
from tests.support.fault_injection import WITHIN_S, cli
from tests.support.reading import read

FLAGS = ("--workers", "cpu:1", "--epochs", 1, "--hidden", "", "--test-fraction", 0)
ROWS = "+1 1:0.5 3:1\n-1 2:0.25\n\n"


class Eager:
    """In the place of DataCache: keeps every file, however fast it is read."""

    @staticmethod
    def of(setting, say):
        return DataCache(Path(setting), say, min_parse_s=0.0)


@pytest.fixture
def write(tmp_path):
    """Writes a file as if that had been long ago."""

    def write(name, content):
        path = tmp_path / name
        path.write_text(content)
        os.utime(path, (1e9, 1e9))
        return path

    return write


@pytest.fixture
def keep(tmp_path):
    """Puts a file into the cache of this test; returns the flags that make a command use it."""
    cache = DataCache(tmp_path / "cache", min_parse_s=0.0)

    def keep(path, **options):
        read(path, cache=cache, **options)
        return ("--data-cache", cache.directory)

    return keep


def test_the_second_run_reads_what_the_first_has_kept(write, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(setup, "DataCache", Eager)
    path, cache = write("x.svm", ROWS * 50), tmp_path / "cache"
    settings = {"hidden": (4,), "epochs": 2, "deterministic": True, "data_cache": cache}
    models = []
    for turn in ("written to the cache", "read from the cache in "):
        run = hogbatch.train(path, run_dir=tmp_path / turn, **settings)
        assert f"{path}: {turn}" in capfd.readouterr().out
        models.append((run.run_dir / "model.safetensors").read_bytes())
    assert models[0] == models[1]
    assert f'data-cache = "{cache}"' in (run.run_dir / "config.toml").read_text()


def test_what_is_in_the_cache_is_not_read_again(write, keep, tmp_path):
    path = write("x.svm", ROWS)
    flags = keep(path)
    for wanted, given in ((True, flags), (False, ("--data-cache", "off")), (False, ())):
        run = ("--run-dir", tmp_path / "run", "--overwrite")
        done = cli("train", path, *FLAGS, *given, *run)
        assert done.returncode == 0, done.stderr
        assert ("read from the cache" in done.stdout) == wanted


def test_a_mistake_in_cached_rows_is_reported_with_file_and_line(write, keep, tmp_path):
    train, test = write("x.svm", ROWS * 9), write("t.svm", ROWS * 9 + "3 1:1\n")
    flags = keep(test, index_base=1, features=3)
    done = cli("train", train, "--test", test, *FLAGS, *flags, "--run-dir", tmp_path / "run")
    assert done.returncode == 2
    assert done.stdout.endswith(" s\n") and f"{test}: read from the cache" in done.stdout
    assert done.stderr.startswith(f"hogbatch: {test}:28: label 3 does not occur")


def test_a_large_file_in_the_cache_is_evaluated_without_the_compiler(write, keep, tmp_path):
    path = write("x.svm", ROWS * (text.BLOCK_BYTES // len(ROWS) + 1))
    flags = keep(path, index_base=1)
    model = tmp_path / "run" / "model.safetensors"
    done = cli("train", write("small.svm", ROWS), *FLAGS, "--run-dir", model.parent)
    assert done.returncode == 0, done.stderr
    code = "import sys; from hogbatch.cli.main import main; main(); print('numba' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, "evaluate", model, path, *flags],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
    )
    assert done.stdout.startswith("rows ") and done.stdout.endswith("False\n"), done.stderr


PROGRAM = """
import sys
from pathlib import Path
from hogbatch.data.cache import DataCache
from tests.support.reading import read
path, folder = sys.argv[1:]
sys.stdin.read()
for _ in range(40):
    raw = read(path, cache=DataCache(Path(folder), min_parse_s=0.0))
    assert raw.inputs.values.tolist() == [2.0, 3.0], raw
    for entry in Path(folder).glob("*.hogdata"):
        entry.unlink(missing_ok=True)
print("numba" in sys.modules)
"""


def test_several_processes_may_share_a_cache(write, tmp_path):
    path, folder = write("a.svm", "1 1:2\n-1 2:3\n"), tmp_path / "cache"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, path, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for process in processes:
        process.stdin.close()  # all begin
        process.stdin = None
    for process in processes:
        out, err = process.communicate(timeout=WITHIN_S)
        assert (process.returncode, out, err) == (0, "False\n", "")
    assert {entry.suffix for entry in folder.iterdir()} <= {".hogdata"}
