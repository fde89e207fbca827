import subprocess
import sys
from types import ModuleType

import pytest

from hogbatch.config.sources import merge_sources
from hogbatch.config.train import TRACKERS
from hogbatch.errors import UsageError
from hogbatch.views.trackers import tracking


def test_every_accepted_name_has_a_tracker():
    assert list(tracking.CLASSES) == list(TRACKERS)


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
@pytest.mark.parametrize("package", [None, ModuleType("a folder that W&B has made")])
def test_a_missing_package_comes_with_its_command(monkeypatch, name, package):
    loaded = (f"{name}.", f"hogbatch.views.trackers.{name}")
    for module in [each for each in sys.modules if each.startswith(loaded)]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, package)
    with pytest.raises(
        UsageError, match=rf"^log {name} needs .* pip install 'hogbatch\[{name}\]'$"
    ):
        tracking.tracker_class(name)


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
