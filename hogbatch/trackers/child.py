"""`python -m hogbatch.trackers.child NAME`: one tracker in a process of its own.

Each line of standard input is a call as JSON, and each line of standard output the reply to it:
{"done": sentence for the user} or {"error": sentence}. If the input ends before the run, the
coordinator was killed; the tracker is told so.
"""

import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, BinaryIO, Final, TextIO

from hogbatch.trackers.base import Point, RunDescription, RunResult, Tracker
from hogbatch.trackers.choose import create
from hogbatch.trackers.credentials import describe_error

NICENESS: Final = 10  # training goes first


def main() -> None:
    """Create the tracker and call it until its run has ended."""
    os.nice(NICENESS)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the run ends first, and this process with it
    calls, replies = _private_streams()
    ended = False
    try:
        tracker = create(sys.argv[1])
        for line in calls:
            call = json.loads(line)
            ended = call["call"] == "finish"
            _reply(replies, done=perform(tracker, call))
        if not ended:
            tracker.finish(RunResult("killed", "the coordinator was killed"))
    except BaseException as error:
        _reply(replies, error=describe_error(error, os.environ))
        os._exit(1)  # threads of a client may still wait for its server


def perform(tracker: Tracker, call: Mapping[str, Any]) -> str:
    """Make a call that :mod:`hogbatch.trackers.remote` has sent; return what `start` says."""
    match call["call"]:
        case "start":
            return tracker.start(RunDescription(**call["run"]))
        case "log":
            tracker.log([Point(*point) for point in call["points"]])
        case "finish":
            tracker.finish(RunResult(**call["result"]))
    return ""


def _private_streams() -> tuple[BinaryIO, TextIO]:
    """Standard input and output of this process, which clients then do not see.

    Clients may print, or ask for an API key.
    """
    calls, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "w")
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    return calls, replies


def _reply(replies: TextIO, **reply: str) -> None:
    with suppress(OSError):  # the coordinator has ended
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
