"""A run of Weights & Biases."""

import os
import secrets
from pathlib import Path
from typing import Final

from wandb import Settings, init, setup

from hogbatch.errors import INTERRUPTED
from hogbatch.events.names import WANDB_RUN
from hogbatch.views.trackers.base import Point, Result, RunStart, Tracker

PROJECT: Final = "hogbatch"  # if there is no WANDB_PROJECT
EXIT_CODES: Final = {"failed": 1, "stopped": INTERRUPTED}  # of other results: 0


class WandbRun(Tracker):
    """Logs as the environment variables of W&B say, by default into RUN_DIR/wandb."""

    def __init__(self, run: RunStart) -> None:
        stored = run.run_dir / WANDB_RUN
        if run.resumed_rows is not None and stored.exists():
            run_id = stored.read_text().strip()
        else:
            run_id = os.environ.get("WANDB_RUN_ID") or secrets.token_hex(4)
            stored.write_text(f"{run_id}\n")
        setup(Settings(silent=True))  # W&B then fails instead of asking for an API key
        self._run = init(
            id=run_id,
            resume="allow",
            reinit="create_new",  # the program that trains may have a run of its own
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            name=os.environ.get("WANDB_NAME") or run.run_dir.name,
            dir=os.environ.get("WANDB_DIR") or str(run.run_dir),
            config=dict(run.settings),
            allow_val_change=True,  # a resumed run may have other settings
            settings=Settings(console="off", silent=True),
        )
        offline = f"offline; upload it with wandb sync {Path(self._run.dir).parent}"
        self.note = f"wandb: run {run_id}, {offline if self._run.offline else self._run.url}"

    def log(self, point: Point) -> None:
        self._run.log(dict(point.values), step=point.step)

    def close(self, result: Result) -> None:
        self._run.summary.update(dict(result))
        self._run.finish(exit_code=EXIT_CODES.get(str(result["result/status"]), 0))
