"""Who is listened to on the control plane, and how much.

What is not read fills the queues of ZeroMQ, and then the sender's `send` waits: a flood costs its
sender time and the training next to nothing. Workers need some 2,000 messages a second at most,
and ZeroMQ takes its peers in turn, so an honest message waits for a rest, not behind the flood.
"""

RATE = 20_000.0  # tokens a second
BURST = 1000.0  # tokens that may be saved up
HONEST, GARBAGE = 1.0, 10.0  # tokens that a message costs, and one that is none
REST_S = 0.001  # how long nothing is read once all tokens are spent
STRIKES = 10  # messages that were none, after which a peer's are dropped unread
MAX_PEERS = 1000  # with strikes that are remembered; the first to be struck is forgotten first


class Throttle:
    """A token bucket for all peers together, and the strikes of each. Times in seconds."""

    def __init__(self, now: float) -> None:
        self._tokens = BURST
        self._counted = now
        self._rested = now
        self._strikes: dict[bytes, int] = {}

    def rest(self, now: float) -> float:
        """For how long nothing is to be read from now on."""
        return max(0.0, self._rested - now)

    def charge(self, tokens: float, now: float) -> None:
        """Pay for a message that was read."""
        earned = (now - self._counted) * RATE
        # A debt is forgiven with the rest, or honest messages would pay it off for long.
        self._tokens = max(-REST_S * RATE, min(BURST, self._tokens + earned) - tokens)
        self._counted = now
        if self._tokens < 0:
            self._rested = now + REST_S

    def strike(self, peer: bytes) -> None:
        """`peer` has sent what is no message."""
        if peer not in self._strikes and len(self._strikes) >= MAX_PEERS:
            del self._strikes[next(iter(self._strikes))]
        self._strikes[peer] = self._strikes.get(peer, 0) + 1

    def out(self, peer: bytes) -> bool:
        """Whether `peer` is not listened to any more."""
        return self._strikes.get(peer, 0) >= STRIKES
