"""Servers whose changes are outliers: so much larger than usual that they would spoil the model.

With wrong data, faulty memory or a faulty device, the model of a server may become worthless
although all of its numbers are finite. The Euclidean norm of its change since the last merge shows
that. It is compared with two references, of which the one with the smaller ratio counts:

- the usual change: the median of all servers' changes in the last merges,
- the median of the other servers' changes in the same merge.

Because of the second one, no server is an outlier if the changes of all servers grow, for example
because training diverges. Until the usual change is known, the second one is used alone, if it is
the median of two changes at least: if two servers differ, either of them may be the faulty one.

The servers need not do equally many updates between two merges. The sum of N updates of the same
length is at most N times as long, if all have the same direction, and about the square root of N
times if the directions are random. So a server that does more updates than the others may have a
larger change by that factor, and so may one that does them on more rows, since the learning rate
may follow the batch size. The change of a server that does less is compared as it is: divided by
the number of updates, the single update of a large batch would seem longer than each of a hundred.

Updates are counted when leases end, and there may be several merges before a lease ends. So the
work of a server is the mean of its last merges, or that of the present merge if it is more. Before
its first lease has ended, its work is unknown, and only UNKNOWN_WORK applies.
"""

import math
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Final, NamedTuple

from hogbatch.wire.messages import Collected

AT_ONCE: Final = 100.0  # times its references: a change that makes a server an outlier
UNKNOWN_WORK: Final = 10_000.0  # the same, while the work of the server is unknown
REPEATED: Final = 10.0  # the same, if it happens in IN_A_ROW merges
IN_A_ROW: Final = 3
KNOWN_AFTER: Final = 5  # merges: the usual change is known
REMEMBERED: Final = 20  # merges: of which it is the median

MOST_RESTARTS: Final = 1  # of a server that was an outlier


class ServerChange(NamedTuple):
    """A change of a server's model, and the work in which it was made."""

    norm: float  # Euclidean, of all parameters
    updates: float
    rows: float


def times_as_large(change: ServerChange, reference: ServerChange) -> float:
    """How many times larger `change` is than `reference`, beyond what more work explains."""
    more_updates = change.updates / max(1.0, reference.updates)
    more_rows = change.rows / max(1.0, reference.rows)
    return change.norm / reference.norm / max(1.0, more_updates, more_rows)


@dataclass(slots=True)
class _ServerHistory:
    """The last merges of one server."""

    merges: int = 0
    updates: float = 0.0  # mean
    rows: float = 0.0  # mean
    large: int = 0  # merges in a row with a change above REPEATED

    def scaled(self, change: ServerChange) -> ServerChange:
        """The change with the work of the last merges, or its own if that is more."""
        work = max(change.updates, self.updates), max(change.rows, self.rows)
        return ServerChange(change.norm, *work)

    def add(self, change: ServerChange, large: bool, compared: bool) -> None:
        """Count a merge; `compared`: other servers had a change, too."""
        self.merges = min(self.merges + 1, REMEMBERED)
        self.updates += (change.updates - self.updates) / self.merges
        self.rows += (change.rows - self.rows) / self.merges
        if change.norm > 0.0 and compared:
            self.large = self.large + 1 if large and self.updates > 0.0 else 0


@dataclass(slots=True)
class OutlierDetector:
    """Finds the servers whose changes are outliers; servers are given by their keys."""

    found: dict[str, str] = field(default_factory=dict)  # in the last merge: reasons by key
    _judged: int = 0  # the last merge whose changes were seen
    # the norms of the changes that are no outliers, by merge
    _norms: deque[list[float]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _servers: dict[str, _ServerHistory] = field(default_factory=dict)

    def judge(self, merge: int, collected: Mapping[str, Collected]) -> bool:
        """Find the outliers of a merge, once for each merge; whether there are any."""
        if self._judged == merge:
            return False
        self._judged = merge
        self.found = self.find(
            {
                key: ServerChange(math.sqrt(sum(each.squares)), each.updates, each.rows)
                for key, each in collected.items()
                if each.finite
            }
        )
        return bool(self.found)

    def find(self, changes: Mapping[str, ServerChange]) -> dict[str, str]:
        """Why some servers are outliers, by key; `changes` are those of the next merge.

        They are at most half of the servers, and less than half until the usual change is known.
        """
        usual = self._usual(changes)
        servers = {key: self._servers.setdefault(key, _ServerHistory()) for key in changes}
        scaled = {key: servers[key].scaled(change) for key, change in changes.items()}
        ratios = {key: _ratio(key, scaled, usual) for key in changes}
        large = {key for key, ratio in ratios.items() if ratio > REPEATED}
        if 2 * len(large) > len(changes) - (usual is None):
            large.clear()
        norms = [change.norm for key, change in changes.items() if key not in large]
        if any(norms):
            self._norms.append([norm for norm in norms if norm > 0.0])
        compared = sum(change.norm > 0.0 for change in changes.values()) > 1
        for key, change in changes.items():
            servers[key].add(change, key in large, compared)
        reasons = {
            key: _reason(ratios[key], servers[key].large, known=scaled[key].updates > 0.0)
            for key in sorted(large)
        }
        return {key: reason for key, reason in reasons.items() if reason}

    def forget(self, key: str) -> None:
        """Server `key` has left."""
        self._servers.pop(key, None)

    def _usual(self, keys: Collection[str]) -> ServerChange | None:
        """The usual change of one server; None if it is not known yet."""
        if len(self._norms) < KNOWN_AFTER:
            return None
        known = [self._servers[key] for key in keys if key in self._servers]
        return ServerChange(
            median(norm for norms in self._norms for norm in norms),
            median([each.updates for each in known] or [0.0]),
            median([each.rows for each in known] or [0.0]),
        )


def _ratio(key: str, changes: Mapping[str, ServerChange], usual: ServerChange | None) -> float:
    """How many times larger the change of server `key` is than both references; 0: none known."""
    if len(changes) < 2:
        return 0.0  # training could not continue without it
    others = [each for other, each in changes.items() if other != key and each.norm > 0.0]
    references = [] if usual is None else [usual]
    if len(others) < (2 if usual is None else 1):
        return 0.0  # its change may be large for a reason that all servers have
    references.append(ServerChange(*map(median, zip(*others, strict=True))))
    return min(times_as_large(changes[key], each) for each in references)


def _reason(ratio: float, in_a_row: int, *, known: bool) -> str | None:
    """Why a server is an outlier; None if it is not. `known`: its work is."""
    if ratio > (AT_ONCE if known else UNKNOWN_WORK):
        return f"its change was {ratio:.3g} times as large as usual"
    if in_a_row >= IN_A_ROW:
        often = f"in {in_a_row} merges in a row"
        return f"its changes were more than {REPEATED:.0f} times as large as usual {often}"
    return None
