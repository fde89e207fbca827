"""A run of Weights & Biases."""

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import wandb

from hogbatch.checkpoint.files import replace_file
from hogbatch.checkpoint.names import WANDB_RUN
from hogbatch.errors import INTERRUPTED
from hogbatch.trackers.base import Point, RunDescription, RunResult

PROJECT: Final = "hogbatch"  # if there is no WANDB_PROJECT


class WandbRun:
    """Logs as the environment variables of W&B say, by default into RUN_DIR/wandb."""

    def __init__(self) -> None:
        self._run: Any = None

    def start(self, run: RunDescription) -> str:
        run_dir = Path(run.run_dir)
        self._run = wandb.init(
            id=_run_id(run_dir / WANDB_RUN, run.resumed_rows is not None),
            resume="allow",
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            name=os.environ.get("WANDB_NAME") or run_dir.name,
            dir=os.environ.get("WANDB_DIR") or str(run_dir),
            config=dict(run.settings),
            allow_val_change=True,  # a resumed run may have other settings
            settings=wandb.Settings(console="off", silent=True),
        )
        offline = f"wandb sync {Path(self._run.dir).parent}"
        return f"wandb: run {self._run.id}, {self._run.url or f'offline; upload it with {offline}'}"

    def log(self, points: Sequence[Point]) -> None:
        for point in points:
            self._run.log(dict(point.values), step=point.step)

    def finish(self, result: RunResult) -> None:
        self._run.summary.update(result.named())
        stopped = result.status in ("stopped", "killed")
        self._run.finish(exit_code=0 if result.succeeded else INTERRUPTED if stopped else 1)

    def abandon(self) -> None:
        """W&B keeps in its own files what it has not sent."""


def _run_id(stored: Path, resumed: bool) -> str:
    """The ID of the run: of the resumed run, or from WANDB_RUN_ID, or a new one."""
    if resumed and stored.exists():
        return stored.read_text().strip()
    run_id = os.environ.get("WANDB_RUN_ID") or secrets.token_hex(4)
    replace_file(stored, [f"{run_id}\n".encode()])
    return run_id
