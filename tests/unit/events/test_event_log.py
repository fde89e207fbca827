import json
import time
from pathlib import Path

import pytest

from hogbatch.events.event import Goodbye, WorkerLost, WorkerReady
from hogbatch.events.event_log import EventLog


@pytest.mark.parametrize(
    ("before", "append", "kept"),
    [
        (None, False, 0),
        (None, True, 0),
        ('{"event": 1}\n', False, 0),
        ('{"event": 1}\n{"event": 2}\n', True, 2),
        ('{"event": 1}\n{"event": "half of', True, 1),
    ],
    ids=["new", "missing", "replaced", "continued", "incomplete"],
)
def test_every_event_is_a_flushed_line_of_json(tmp_path, before, append, kept):
    path, begun = tmp_path / "events.jsonl", time.time() - 1e-4
    if before is not None:
        path.write_text(before)
    log = EventLog(path, append, {"rehearsed": "a server"})
    written = log.write(WorkerLost("cpu-0", "a\nb")), log.write(WorkerReady("cpu-0", (1, 64), 8))
    old, new = (lines := path.read_text().splitlines())[:kept], lines[kept:]
    assert old == (before or "").splitlines()[:kept]
    one, two = written
    assert begun <= one.at <= two.at <= time.time() + 1e-4
    head = {"at": one.at, "rehearsed": "a server", "worker": "cpu-0"}
    assert [list(json.loads(line).items()) for line in new] == [
        [*({"event": "worker_lost"} | head | {"reason": "a\nb"}).items()],
        [
            *{"event": "worker_ready", **head, "at": two.at}.items(),
            *{"limits": [1, 64], "batch_size": 8}.items(),
        ],
    ]
    log.close()


@pytest.mark.parametrize(
    ("path", "warning"),
    [
        ("/dev/full", "event logging has stopped: No space left on device"),
        ("/dev/null/events.jsonl", "cannot log events: Not a directory"),
    ],
)
def test_a_log_that_cannot_be_written_is_one_warning(path, warning, caplog):
    log = EventLog(Path(path))
    for _ in range(3):
        log.write(Goodbye("cpu-0"))
    log.close()
    assert caplog.messages == [f"{path}: {warning}"]
