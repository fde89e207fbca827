"""`hogbatch replay`: repeats a recorded run and finds the update after which it failed."""

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hogbatch.config.values import NUMBER
from hogbatch.errors import UsageError
from hogbatch.jit import COMPILING, before_compiling
from hogbatch.model.file import save_model
from hogbatch.replay.findings import Finding, FiniteChecks, LossJumps
from hogbatch.replay.player import Player
from hogbatch.replay.recorded import RecordedRun, open_run
from hogbatch.replay.results import Evaluated, Update
from hogbatch.run.results import build_model
from hogbatch.store.scan import first_not_finite
from hogbatch.telemetry.console import PlainConsole

LARGE = 1000.0  # losses from here on are shown with an exponent
MAX_ROWS_SHOWN = 8  # row numbers of an update in the table


@dataclass(frozen=True, slots=True)
class Limit:
    """Where a replay ends."""

    updates: int | None = None
    seconds: float = math.inf

    def reached(self, updates: int, seconds: float) -> bool:
        """Whether the replay ends after this number of updates, or of training seconds."""
        return seconds > self.seconds or (self.updates is not None and updates >= self.updates)


@dataclass(slots=True)
class Result:
    """What a replay has found."""

    updates: int  # replayed
    recorded: int  # updates in the record
    evaluations: list[Evaluated]
    findings: list[Finding]
    notes: list[str]


def execute(run_dir: str, *, until: str | None, output: str | None, json: bool) -> int:
    """Replay the run in `run_dir` and print what happened; return the exit code.

    UsageError if it cannot be replayed.
    """
    limit = parse_limit(until)
    run = open_run(Path(run_dir), PlainConsole(quiet=True))
    with before_compiling(lambda: print(COMPILING, file=sys.stderr, flush=True)):
        result = replay(run, limit, None if output is None else Path(output))
    print(_json(run, result) if json else "\n".join(_lines(run, result)))
    return 0


def parse_limit(text: str | None) -> Limit:
    """Parse --until: "12.5s" are training seconds, "4000" is a number of updates."""
    if text is None:
        return Limit()
    try:
        if text.endswith("s"):
            seconds = NUMBER.from_text(text.removesuffix("s"))
            if isinstance(seconds, float) and 0 < seconds < math.inf:
                return Limit(seconds=seconds)
        elif (updates := int(text)) > 0:
            return Limit(updates=updates)
    except ValueError:
        pass
    raise UsageError(
        f"--until: expected a number of updates, or training seconds, as in 2.5s; got {text!r}"
    )


def replay(run: RecordedRun, limit: Limit, output: Path | None = None) -> Result:
    """Replay `run` up to `limit`; write the model at that moment to the file `output`."""
    jumps = LossJumps()
    checks, result = _play(run, limit, jumps.add, None, output)
    if checks.suspect is not None:  # again, with a check after each possible update
        again = Limit(updates=checks.suspect, seconds=limit.seconds)
        checks, _ = _play(run, again, lambda update: None, checks.finite + 1, None)
    result.findings = [each for each in (checks.found, jumps.found) if each is not None]
    return result


def _play(
    run: RecordedRun,
    limit: Limit,
    watch: Callable[[Update], None],
    check_from: int | None,
    output: Path | None,
) -> tuple[FiniteChecks, Result]:
    def wrote(update: Update) -> None:
        watch(update)
        checks.add(update)

    def find() -> str:
        index = first_not_finite(player.params)
        return "" if index is None else run.network.place(index)

    checks = FiniteChecks(find, check_from)
    player = Player(run, wrote, lambda: checks.check(player.updates))
    try:
        player.play(limit.reached)
        checks.check(player.updates)
        if output is not None:
            save_model(build_model(run.config, run.data, run.network, player.params, {}), output)
        updates = player.updates, player.schedule.updates
        return checks, Result(*updates, player.evaluations, [], list(_notes(run)))
    finally:
        player.close()


def _notes(run: RecordedRun) -> Iterator[str]:
    if run.resumed:
        yield "the run was resumed later; only the part before that is recorded"
    for path in run.without_header:
        yield f"{path} has no header; its worker was killed before it had recorded an update"


# Output -------------------------------------------------------------------------------------------


def _lines(run: RecordedRun, result: Result) -> Iterator[str]:
    """The result as text."""
    yield f"{run.run_dir}: {result.updates:,} of {result.recorded:,} recorded updates replayed"
    yield from result.notes
    yield f"{'seconds':>9}  {'updates':>9}  {'train loss':^19}  {'test loss':^19}"
    yield f"{'':9}  {'':9}  {'recorded':>9} {'replayed':>9}  {'recorded':>9} {'replayed':>9}"
    for each in result.evaluations:
        losses = [each.train_loss, each.replayed_train_loss, each.test_loss]
        train, again, test, test_again = map(_number, [*losses, each.replayed_test_loss])
        yield f"{each.seconds:9.3f}  {each.updates:9,}  {train} {again}  {test} {test_again}"
    for finding in result.findings:
        yield f"{finding.what} {_described(finding.update)}"
    if not result.findings:
        yield "the model stayed finite, and the training loss did not jump"


def _number(value: float | None) -> str:
    if value is None:
        return f"{'-':>9}"
    return f"{value:9.4f}" if abs(value) < LARGE else f"{value:9.3g}"


def _described(update: Update) -> str:
    """An update, who made it and from which rows."""
    rows = ", ".join(str(row) for row in update.rows_of_data[:MAX_ROWS_SHOWN])
    more = ", ..." if update.rows > MAX_ROWS_SHOWN else ""
    stop = update.start + update.rows
    return (
        f"update {update.number:,} at {update.seconds:.3f} s by {update.worker}, thread "
        f"{update.thread}: rows [{update.start}, {stop}) of epoch {update.epoch} (rows {rows}{more}"
        f" of the training set) in batches of {update.batch_size}, learning rate "
        f"{update.learning_rate:.4g}, staleness {update.staleness}"
    )


def _json(run: RecordedRun, result: Result) -> str:
    """The result as JSON."""
    found = [{"what": each.what, "update": _fields(each.update)} for each in result.findings]
    content = {
        "run_dir": str(run.run_dir),
        "updates": result.updates,
        "recorded_updates": result.recorded,
        "evaluations": [each._asdict() for each in result.evaluations],
        "findings": found,
        "notes": result.notes,
    }
    return msgspec.json.encode(content).decode()


def _fields(update: Update) -> dict[str, Any]:
    return {**update._asdict(), "rows_of_data": update.rows_of_data.tolist()}
