"""The search for a peer's best setting on a problem, and the files that keep the settings found.

The whole grid is searched; runs far behind the best so far are cut short.
"""

import json
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.common.peer_process import PeerProcess
from benchmarks.peers.contract import Curve, Peer, Problem, Setting, Stopwatch, reached

PACE_S = 0.5  # training seconds to measure the rows per second of a setting
PACE_RUNS = 2
RATE = "lr"  # the key of a setting that changes neither speed nor the group it belongs to

Train = Callable[[Setting, Stopwatch], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class TunedSettings:
    """A JSON file {data set: {peer: {"setting": ..., "seconds": ..., ...}}}."""

    path: Path

    def read(self) -> dict[str, dict[str, Any]]:
        """The contents of the file; empty if it does not exist."""
        content = json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {}
        found: dict[str, dict[str, Any]] = content
        return found

    def setting(self, which: str, name: str) -> Setting | None:
        """The setting of peer `name` on the data set `which`; None if none was found yet."""
        found: Setting | None = self.read().get(which, {}).get(name, {}).get("setting")
        return found

    def keep(self, which: str, name: str, entry: dict[str, Any]) -> None:
        """Store the entry of peer `name` on the data set `which`."""
        tuned = self.read()
        tuned.setdefault(which, {})[name] = entry
        self.path.write_text(json.dumps(tuned, indent=1) + "\n", encoding="utf-8")


@dataclass(slots=True)
class BestSetting:
    """The best setting so far: the first to reach the target, else the lowest in loss."""

    target: float
    setting: Setting | None = None
    curve: Curve = field(default_factory=list)

    @property
    def seconds(self) -> float | None:
        """Seconds to the target."""
        return reached(self.curve, self.target)

    @property
    def lowest(self) -> float:
        """The lowest loss of its run."""
        return min((loss for _, loss in self.curve), default=math.inf)

    def offer(self, setting: Setting, curve: Curve) -> bool:
        """Replace the best by `setting` if its run was better; return whether it was."""
        better = bool(curve) and self._rank(curve) < self._rank(self.curve)
        if better:
            self.setting, self.curve = setting, curve
        return better

    def entry(self, grid_size: int) -> dict[str, Any]:
        """The entry of a file of tuned settings."""
        return {
            "setting": self.setting,
            "seconds": self.seconds,
            "lowest_loss": self.lowest,
            "grid_size": grid_size,
        }

    def _rank(self, curve: Curve) -> tuple[float, float]:
        seconds = reached(curve, self.target)
        lowest = min((loss for _, loss in curve), default=math.inf)
        return math.inf if seconds is None else seconds, lowest


class PeerProcesses:
    """A peer's processes, one for each number of threads; every run has seed 0."""

    def __init__(self, name: str, directory: Path, report: Callable[[str], None]) -> None:
        self._name, self._directory, self._report = name, directory, report
        self._open: dict[int, tuple[ExitStack, PeerProcess]] = {}

    def train(self, setting: Setting, watch: Stopwatch) -> dict[str, Any]:
        """One run; a setting that makes its process fail has an empty curve."""
        threads = setting.get("threads", 1)
        if threads not in self._open:
            stack = ExitStack()
            process = stack.enter_context(PeerProcess(self._name, self._directory, threads))
            self._open[threads] = stack, process
        try:
            return self._open[threads][1].train(setting, 0, watch)
        except RuntimeError as error:
            self._report(str(error))
            self._open.pop(threads)[0].close()
            return {"curve": [], "rows": 0}

    def close(self) -> None:
        """Stop all processes."""
        for stack, _ in self._open.values():
            stack.close()


def search(
    peer: Peer, settings: Sequence[Setting], known: Setting | None, train: Train, watch: Stopwatch
) -> BestSetting:
    """Try `settings`, each for at most as long as the best so far took.

    Of settings that differ only in speed the fastest is tried, because the others take the same
    steps. Of settings that differ only in learning rate, rates are tried from the middle one on
    while the result improves. `known` is tried first, so that worse settings are cut short earlier.
    `watch` holds the target and the limit.
    """
    best = BestSetting(watch.target)

    def attempt(setting: Setting) -> Curve:
        limit_s = best.seconds or watch.limit_s
        curve: Curve = train(setting, Stopwatch(watch.target, limit_s, best.curve))["curve"]
        mark = "  best so far" if best.offer(setting, curve) else ""
        end = f"{curve[-1][1]:.4g} at {curve[-1][0]:.2f} s" if curve else "failed"
        print(f"{peer.NAME} {setting}: {end}{mark}", flush=True)
        return curve

    groups: dict[tuple[Any, ...], list[Setting]] = {}
    for setting in sorted(settings, key=lambda setting: key(peer, setting) != key(peer, known)):
        groups.setdefault(key(peer, setting), []).append(setting)
    for group in groups.values():
        pace = fastest(peer, group, train)
        ladder = [s for s in group if all(s.get(name) == pace.get(name) for name in peer.PACE)]
        rates = [setting[RATE] for setting in ladder]
        start = rates.index(known[RATE]) if known in group and known else len(rates) // 2
        climb([partial(attempt, setting) for setting in ladder], start, watch.target)
    return best


def climb(rungs: Sequence[Callable[[], Curve]], start: int, target: float) -> None:
    """Try rungs upwards from `start` while the result improves; if it never does, downwards."""
    at, curve = start, rungs[start]()
    for step in (1, -1):
        while 0 <= at + step < len(rungs) and ahead(found := rungs[at + step](), curve, target):
            at, curve = at + step, found
        if at != start:
            return


def ahead(curve: Curve, other: Curve, target: float) -> bool:
    """Whether `curve` is better than `other`.

    The curve that reached the target first is better. If neither did, it is the curve with the
    lower loss at the end of the shorter one.
    """
    if not curve or not other:
        return bool(curve)
    first, second = reached(curve, target), reached(other, target)
    if first is not None or second is not None:
        return second is None or (first is not None and first < second)
    end = min(curve[-1][0], other[-1][0])
    lowest = [min(loss for at, loss in each if at <= end) for each in (curve, other)]
    return lowest[0] < lowest[1]


def key(peer: Peer, setting: Setting | None) -> tuple[Any, ...]:
    """The items of a setting except those for speed and the learning rate: the key of its group."""
    return tuple(
        sorted(pair for pair in (setting or {}).items() if pair[0] not in (*peer.PACE, RATE))
    )


def fastest(peer: Peer, group: Sequence[Setting], train: Train) -> Setting:
    """The setting of `group` with the most rows per second, at the group's lowest learning rate."""
    slow = min(setting[RATE] for setting in group)
    candidates = [setting for setting in group if setting[RATE] == slow]
    if len(candidates) == 1:
        return candidates[0]
    rates = [0.0] * len(candidates)
    for _ in range(PACE_RUNS):  # in turn, and the best counts: other load slows down some runs
        for i, setting in enumerate(candidates):
            watch = Stopwatch(-math.inf, PACE_S)
            rates[i] = max(rates[i], rows_per_second(train(setting, watch)))
    return candidates[rates.index(max(rates))]


def rows_per_second(answer: dict[str, Any]) -> float:
    """Training speed of a run; 0 if the run failed."""
    curve = answer["curve"]
    return answer["rows"] / curve[-1][0] if curve and curve[-1][0] else 0.0


def tune(
    name: str,
    settings: TunedSettings,
    which: str,
    problem: Problem,
    directory: Path,
    watch: Stopwatch,
    fixed: Setting | None = None,
) -> None:
    """Search the grid of peer `name` on the data set `which`, and store the setting found.

    The peer reads `problem` from `directory`. `fixed` is added to each setting for its runs.
    """
    peer, known = peers.peer(name), settings.setting(which, name)
    if not (grid := peer.grid(problem)):
        return
    with closing(PeerProcesses(name, directory, print)) as processes:

        def train(setting: Setting, watch: Stopwatch) -> dict[str, Any]:
            return processes.train(setting | (fixed or {}), watch)

        best = search(peer, grid, known, train, watch)
    if best.setting:
        settings.keep(which, name, best.entry(len(grid)))
