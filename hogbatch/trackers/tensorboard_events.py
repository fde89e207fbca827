"""Event files of TensorBoard, written with its own package."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from hogbatch.checkpoint.names import TENSORBOARD
from hogbatch.trackers.base import Point, RunDescription, RunResult

FLUSH_S = 3600.0  # not used: every evaluation is flushed


class TensorBoardEvents:
    """Writes one event file per start of the run into RUN_DIR/tensorboard."""

    def __init__(self) -> None:
        self._writer: EventFileWriter | None = None
        self._began_at = 0.0
        self._last = (0, 0.0)  # step and training seconds

    def start(self, run: RunDescription) -> str:
        folder = Path(run.run_dir) / TENSORBOARD
        self._began_at, self._last = run.began_at, (max(0, run.resumed_rows or 0), 0.0)
        continued = folder.is_dir()
        self._writer = EventFileWriter(str(folder), flush_secs=FLUSH_S)
        if continued and run.resumed_rows is not None:
            # TensorBoard then drops what earlier files have at this step or later.
            begin = SessionLog(status=SessionLog.START)
            step = run.resumed_rows + 1
            self._writer.add_event(Event(wall_time=run.began_at, step=step, session_log=begin))
        else:
            name = Path(run.run_dir).name
            self._add(hparams_pb(dict(run.settings), name, run.began_at))
            self._add(text_pb("settings", _table(run.settings)))
        self._writer.flush()
        return ""

    def log(self, points: Sequence[Point]) -> None:
        for point in points:
            self._last = (point.step, point.seconds)
            values = [Summary.Value(tag=tag, simple_value=x) for tag, x in point.values.items()]
            self._add(Summary(value=values))
        self._open().flush()

    def finish(self, result: RunResult) -> None:
        self._add(text_pb("result", _table(result.named())))
        self._open().close()

    def abandon(self) -> None:
        """Every evaluation is already written."""

    def _add(self, summary: Summary) -> None:
        step, seconds = self._last
        at = self._began_at + seconds
        self._open().add_event(Event(wall_time=at, step=step, summary=summary))

    def _open(self) -> EventFileWriter:
        if self._writer is None:
            raise RuntimeError("start was not called")
        return self._writer


def _table(values: Mapping[str, object]) -> str:
    """A table in Markdown, which TensorBoard shows."""
    cells = {name: str(value).replace("|", "\\|") for name, value in values.items()}
    rows = [f"| {name} | {cell} |" for name, cell in cells.items()]
    return "\n".join(["| name | value |", "|---|---|", *rows])
