"""A process that uses prepared files as the commands do, and prints what happened.

It reads lines of JSON, a kind and a folder next to that of the unchanged files. It answers each
with a line: "used" or "refused", or "failed" with the traceback.
"""

import io
import json
import os
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import hogbatch
from hogbatch.cli.main import main
from hogbatch.data.cache import DataCache
from hogbatch.errors import UsageError
from hogbatch.machine import budget
from hogbatch.run import setup
from tests.support.prepared_files import KINDS, SETTINGS

MEMORY = 1 << 29  # bytes that this process may allocate


class ReadAgain(UsageError):
    """The text is about to be read, because the entry is not used."""


class OnlyEntries(DataCache):
    """In the place of DataCache: does not read text."""

    @classmethod
    def of(cls, setting, say):
        return cls(Path(setting), say)

    def read(self, path, options, parse, form):
        def refuse():
            raise ReadAgain("the entry is not used")

        return super().read(path, options, refuse, form)


def use_cache(data: Path, folder: Path, settings) -> str:
    given = SETTINGS | settings | {"data_cache": str(folder / "cache"), "epochs": 1}
    try:
        hogbatch.train(data, run_dir=folder / "run", **given)
    except ReadAgain:
        return "refused"
    except UsageError:  # such as too few classes
        pass
    return "used"


def use_model(data: Path, folder: Path, settings) -> str:
    model = str(folder / "run" / "model.safetensors")
    commands = ["predict"], ["predict", "--proba"], ["predict", "--top", "2"], ["evaluate"]
    codes = [main([command, model, str(data), *flags]) for command, *flags in commands]
    assert {*codes} <= {0, 2}, codes
    return "used" if 0 in codes else "refused"


def use_checkpoint(data: Path, folder: Path, settings) -> str:
    run = str(folder / "run")
    flags = ["--resume", run, "--run-dir", run, "--epochs", "3", "--max-seconds", "5"]
    with redirect_stdout(io.StringIO()) as said:
        code = main(["train", *flags, "--data-cache", "off"])
    assert code in (0, 2), (code, said.getvalue())
    return "used" if "from " + run + "/checkpoints/000002" in said.getvalue() else "refused"


def use(kind: str, folder: Path) -> str:
    name, settings = KINDS[kind]
    use_kind = {"cache": use_cache, "check": use_checkpoint}.get(kind[:5], use_model)
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        return use_kind(folder.with_name("original") / name, folder, settings)


def answer_all() -> None:
    setup.DataCache = OnlyEntries
    budget.available = lambda: budget.Available(MEMORY, "")
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        kind, folder = json.loads(line)
        try:
            outcome, reason = use(kind, Path(folder)), ""
        except Exception:
            outcome, reason = "failed", traceback.format_exc()
        print(json.dumps([outcome, reason]), file=answers, flush=True)


if __name__ == "__main__":
    answer_all()
