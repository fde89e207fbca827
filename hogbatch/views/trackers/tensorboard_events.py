"""Event files of TensorBoard, written with its own package."""

from collections.abc import Mapping

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from hogbatch.events.names import TENSORBOARD
from hogbatch.views.trackers.base import Point, Result, RunStart, Tracker


class TensorBoardEvents(Tracker):
    """Writes one event file per start of the run into RUN_DIR/tensorboard."""

    def __init__(self, run: RunStart) -> None:
        folder, rows = run.run_dir / TENSORBOARD, run.resumed_rows
        continues = folder.is_dir()
        self._writer = EventFileWriter(str(folder))
        self._began_at = run.began_at
        self._last = (max(0, rows or 0), 0.0)  # step and training seconds
        if rows is not None and continues:
            # TensorBoard then drops what earlier files have at this step or later.
            begin = SessionLog(status=SessionLog.START)
            self._writer.add_event(Event(wall_time=run.began_at, step=rows + 1, session_log=begin))
        else:
            self._add(hparams_pb(dict(run.settings), run.run_dir.name, run.began_at))
            self._add(text_pb("settings", _table(run.settings)))
        self._writer.flush()

    def log(self, point: Point) -> None:
        self._last = point.step, point.seconds
        values = [Summary.Value(tag=tag, simple_value=x) for tag, x in point.values.items()]
        self._add(Summary(value=values))
        self._writer.flush()

    def close(self, result: Result) -> None:
        self._add(text_pb("result", _table(result)))
        self._writer.close()

    def _add(self, summary: Summary) -> None:
        step, seconds = self._last
        at = self._began_at + seconds
        self._writer.add_event(Event(wall_time=at, step=step, summary=summary))


def _table(values: Mapping[str, str | float]) -> str:
    """A table in Markdown, which TensorBoard shows."""
    cells = {name: str(value).replace("|", "\\|") for name, value in values.items()}
    rows = [f"| {name} | {cell} |" for name, cell in cells.items()]
    return "\n".join(["| name | value |", "|---|---|", *rows])
