"""Model files of earlier versions can still be used; their checkpoints may be refused.

files/version-0.1.0/ was written by version 0.1.0 with

    hogbatch train rows.svm --hidden 4 --epochs 2 --deterministic --workers cpu:1 --data-cache off
        --checkpoint-seconds 1 --run-dir run
    hogbatch predict run/model.safetensors rows.svm --proba > probabilities.txt

(without the event log, the worker log and the address file). Add a folder for each version that
changes a format; never change an existing one.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest

from hogbatch.run.checkpoint import folder

VERSIONS = sorted((Path(__file__).parent / "files").glob("version-*"))
pytestmark = pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)


@pytest.fixture
def old(version, tmp_path):
    """A copy of the files of a version."""
    copy = tmp_path / "old"
    shutil.copytree(version, copy)
    for path in (copy, *copy.rglob("*")):  # the checkout may be read-only
        path.chmod(0o700 if path.is_dir() else 0o600)
    (copy / "run" / "config.toml").unlink()  # the settings may be others now
    return copy


def test_an_old_model_gives_the_same_probabilities_and_is_evaluated(old, main):
    given = (old / "run" / "model.safetensors", old / "rows.svm")
    done = main("predict", *given, "--proba")
    assert done.returncode == 0, done.stderr
    expected = np.loadtxt(old / "probabilities.txt")
    np.testing.assert_allclose(np.loadtxt(done.stdout.splitlines()), expected, atol=1e-6)
    assert "accuracy" in main("evaluate", *given).stdout


def test_a_checkpoint_with_other_results_is_not_resumed(old, main):
    checkpoint, unusable = folder.newest_intact(old / "run" / "checkpoints")
    assert checkpoint is not None and unusable == []
    done = main("train", "rows.svm", "--resume", "run", "--run-dir", "run", "--epochs", 4, cwd=old)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "checkpoints/000001: not valid for this version: " in done.stderr
