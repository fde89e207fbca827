"""A second run reads text from the cache, with the same results as the first."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import hogbatch
from hogbatch.data.cache import DataCache
from hogbatch.run import setup
from tests.support.fault_injection import WITHIN_S

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
"""


def test_several_processes_may_share_a_cache(write, tmp_path):
    path, folder = write("a.svm", "1 1:2\n-1 2:3\n"), tmp_path / "cache"
    command = [sys.executable, "-c", PROGRAM, path, folder]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    processes = [subprocess.Popen(command, text=True, **pipes) for _ in range(3)]
    for process in processes:
        process.stdin.close()  # all begin
        process.stdin = None
    for process in processes:
        out, err = process.communicate(timeout=WITHIN_S)
        assert (process.returncode, out, err) == (0, "", "")
    assert {entry.suffix for entry in folder.iterdir()} <= {".hogdata"}
