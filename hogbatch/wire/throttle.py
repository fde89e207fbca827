"""Rate limit for reading the control plane.

Unread messages fill ZeroMQ's queues, and then the sender's `send` blocks: a flood costs its sender
time and barely slows training. Workers send at most about 2,000 messages a second in total, and
ZeroMQ reads its peers in turn, so a valid message waits for one pause, not for the whole flood.
"""

RATE = 20_000.0  # tokens a second
BURST = 1000.0  # maximum number of saved tokens
VALID, INVALID = 1.0, 10.0  # cost in tokens of a valid and of an invalid message
PAUSE_S = 0.001  # length of the pause in reading when all tokens are spent
MAX_STRIKES = 10  # invalid messages after which a peer's messages are dropped unread
MAX_PEERS = 1000  # for which strikes are counted; the oldest entry is dropped first


class Throttle:
    """A token bucket shared by all peers, and each peer's strikes. Times are in seconds."""

    def __init__(self, now: float) -> None:
        self._tokens = BURST
        self._counted = now
        self._paused_until = now
        self._strikes: dict[bytes, int] = {}

    def pause(self, now: float) -> float:
        """Remaining time in which nothing may be read."""
        return max(0.0, self._paused_until - now)

    def charge(self, tokens: float, now: float) -> None:
        """Charge the cost of a message that was read."""
        earned = (now - self._counted) * RATE
        # Debt is limited to one pause; otherwise valid messages would be delayed for long.
        self._tokens = max(-PAUSE_S * RATE, min(BURST, self._tokens + earned) - tokens)
        self._counted = now
        if self._tokens < 0:
            self._paused_until = now + PAUSE_S

    def strike(self, peer: bytes) -> None:
        """Count an invalid message of `peer`."""
        if peer not in self._strikes and len(self._strikes) >= MAX_PEERS:
            del self._strikes[next(iter(self._strikes))]
        self._strikes[peer] = self._strikes.get(peer, 0) + 1

    def is_blocked(self, peer: bytes) -> bool:
        """Whether messages of `peer` are dropped unread."""
        return self._strikes.get(peer, 0) >= MAX_STRIKES
