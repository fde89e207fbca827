"""The search for a peer's best setting on a problem: its whole grid, the hopeless cut short."""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from peers.contract import Curve, Peer, Setting, Watch, reached
from peers.process import PeerProcess

PACE_S = 0.5  # of training, to see how many rows a second a setting runs
PACE_RUNS = 2
RATE = "lr"  # alters neither pace nor what else a group of settings has in common

Train = Callable[[Setting, Watch], dict[str, Any]]


@dataclass(slots=True)
class Best:
    """The best setting so far: soonest at the target, else lowest in loss."""

    target: float
    setting: Setting | None = None
    curve: Curve = field(default_factory=list)

    @property
    def seconds(self) -> float | None:
        """When it reached the target."""
        return reached(self.curve, self.target)

    def offer(self, setting: Setting, curve: Curve) -> bool:
        """Take `setting` if it is better; whether it is."""
        better = bool(curve) and self._rank(curve) < self._rank(self.curve)
        if better:
            self.setting, self.curve = setting, curve
        return better

    def _rank(self, curve: Curve) -> tuple[float, float]:
        seconds = reached(curve, self.target)
        lowest = min((loss for _, loss in curve), default=math.inf)
        return math.inf if seconds is None else seconds, lowest


class Processes:
    """A peer's processes, one for each number of threads, with seed 0 for every run."""

    def __init__(self, name: str, directory: Path, say: Callable[[str], None]) -> None:
        self._name, self._directory, self._say = name, directory, say
        self._open: dict[int, tuple[ExitStack, PeerProcess]] = {}

    def train(self, setting: Setting, watch: Watch) -> dict[str, Any]:
        """One run; a setting that ends its process has an empty curve."""
        threads = setting.get("threads", 1)
        if threads not in self._open:
            stack = ExitStack()
            process = stack.enter_context(PeerProcess(self._name, self._directory, threads))
            self._open[threads] = stack, process
        try:
            return self._open[threads][1].train(setting, 0, watch)
        except RuntimeError as error:
            self._say(str(error))
            self._open.pop(threads)[0].close()
            return {"curve": [], "rows": 0}

    def close(self) -> None:
        """End them all."""
        for stack, _ in self._open.values():
            stack.close()


def search(
    peer: Peer, settings: Sequence[Setting], known: Setting | None, train: Train, watch: Watch
) -> Best:
    """Try `settings`, each for no longer than the best so far took.

    Of settings that differ in pace alone the fastest is tried, for the others take the same steps;
    of those that differ in learning rate alone each while it gets better, from the middle one on.
    `known` comes first, so that others fail sooner. `watch` says target and limit.
    """
    best = Best(watch.target)

    def attempt(setting: Setting) -> Curve:
        limit_s = best.seconds or watch.limit_s
        curve: Curve = train(setting, Watch(watch.target, limit_s, best.curve))["curve"]
        mark = "  best so far" if best.offer(setting, curve) else ""
        end = f"{curve[-1][1]:.4g} at {curve[-1][0]:.2f} s" if curve else "failed"
        print(f"{peer.name} {setting}: {end}{mark}", flush=True)
        return curve

    groups: dict[tuple[Any, ...], list[Setting]] = {}
    for setting in sorted(settings, key=lambda setting: key(peer, setting) != key(peer, known)):
        groups.setdefault(key(peer, setting), []).append(setting)
    for group in groups.values():
        pace = fastest(peer, group, train)
        ladder = [s for s in group if all(s.get(name) == pace.get(name) for name in peer.pace)]
        rates = [setting[RATE] for setting in ladder]
        start = rates.index(known[RATE]) if known in group and known else len(rates) // 2
        climb([partial(attempt, setting) for setting in ladder], start, watch.target)
    return best


def climb(rungs: Sequence[Callable[[], Curve]], start: int, target: float) -> None:
    """Go up from `start` while it gets better; if it never does, go down while it does."""
    at, curve = start, rungs[start]()
    for step in (1, -1):
        while 0 <= at + step < len(rungs) and ahead(found := rungs[at + step](), curve, target):
            at, curve = at + step, found
        if at != start:
            return


def ahead(curve: Curve, other: Curve, target: float) -> bool:
    """Whether `curve` reached the target sooner, or where none did is lower when the first ends."""
    if not curve or not other:
        return bool(curve)
    mine, others = reached(curve, target), reached(other, target)
    if mine is not None or others is not None:
        return others is None or (mine is not None and mine < others)
    end = min(curve[-1][0], other[-1][0])
    lowest = [min(loss for at, loss in each if at <= end) for each in (curve, other)]
    return lowest[0] < lowest[1]


def key(peer: Peer, setting: Setting | None) -> tuple[Any, ...]:
    """What a setting has in common with those that differ in pace and learning rate alone."""
    return tuple(
        sorted(pair for pair in (setting or {}).items() if pair[0] not in (*peer.pace, RATE))
    )


def fastest(peer: Peer, group: Sequence[Setting], train: Train) -> Setting:
    """The one of `group` that runs the most rows a second, at the group's lowest learning rate."""
    slow = min(setting[RATE] for setting in group)
    candidates = [setting for setting in group if setting[RATE] == slow]
    if len(candidates) == 1:
        return candidates[0]
    rates = [0.0] * len(candidates)
    for _ in range(PACE_RUNS):  # in turn, the best counts: a machine in use slows some down
        for i, setting in enumerate(candidates):
            rates[i] = max(rates[i], pace(train(setting, Watch(-math.inf, PACE_S))))
    return candidates[rates.index(max(rates))]


def pace(answer: dict[str, Any]) -> float:
    """Rows a second of training; 0 of a run that failed."""
    curve = answer["curve"]
    return answer["rows"] / curve[-1][0] if curve and curve[-1][0] else 0.0
