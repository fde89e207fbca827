import subprocess
import sys

import pytest

from hogbatch.config.sources import merge_sources
from hogbatch.config.train import TRACKERS
from hogbatch.errors import UsageError
from hogbatch.trackers import choose


def test_every_accepted_name_has_a_tracker():
    assert list(choose.KINDS) == list(TRACKERS)


def test_a_missing_package_comes_with_its_command(monkeypatch):
    monkeypatch.setattr(choose, "find_spec", lambda name: None)
    choose.expect_installed(["csv"])
    with pytest.raises(UsageError, match=r"pip install 'hogbatch\[mlflow\]'$"):
        choose.expect_installed(["csv", "mlflow"])


def test_a_folder_is_no_package(tmp_path, monkeypatch):
    """W&B makes a folder of the name of its package."""
    (tmp_path / "zebra").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(choose.KINDS, "zebra", choose.TrackerKind(("zebra",), ()))
    with pytest.raises(UsageError, match="zebra"):
        choose.expect_installed(["zebra"])


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match="log must be one of csv, tensorboard, mlflow, wandb; got"):
        merge_sources({"data": "a9a", "log": "csv,aim"})


def test_nothing_is_imported_before_a_tracker_needs_it():
    code = (
        "import sys, hogbatch.run.training\n"
        "print({'mlflow', 'wandb', 'tensorboard'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "set()"
