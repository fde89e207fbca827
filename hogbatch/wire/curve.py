"""Who may come in over tcp: workers that have this run's keys (CurveZMQ, RFC 26; ZAP, RFC 27).

Two key pairs are made for each run. The coordinator's secret key never leaves its process; what
workers need stands in coordinator.json, which only the user can read. All traffic is encrypted.
"""

from typing import TypeAlias

import zmq
from zmq.utils import z85

from hogbatch.errors import UsageError
from hogbatch.wire.address import Keys
from hogbatch.wire.listen import Endpoint

Socket: TypeAlias = "zmq.Socket[bytes]"

ZAP = "inproc://zeromq.zap.01"  # where libzmq asks who may come in
VERSION, CURVE = b"1.0", b"CURVE"
HANDSHAKE_MS = 5000
FAILURES = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
MAX_AT_ONCE = 1000  # handshakes of one `attend`


class Authenticator:
    """Guards the ROUTER of one run. Answers libzmq's questions in `attend`, on no thread."""

    def __init__(self, context: "zmq.Context[Socket]", router: Socket, endpoint: Endpoint) -> None:
        """Make keys and have `router`, to be bound to `endpoint`, let in only who has them."""
        if not zmq.has("curve"):
            raise UsageError(
                f"--listen {endpoint} would let anyone in: this libzmq was built without"
                " encryption; install pyzmq as a wheel, or say --insecure where you trust everyone"
                " who can reach that address"
            )
        self.turned_away = 0
        server, own_secret = zmq.curve_keypair()
        public, secret = zmq.curve_keypair()
        self.keys = Keys(server.decode(), public.decode(), secret.decode())
        self._admitted = z85.decode(public)
        self._questions = context.socket(zmq.REP)
        self._questions.bind(ZAP)
        router.setsockopt(zmq.CURVE_SERVER, 1)
        router.setsockopt(zmq.CURVE_SECRETKEY, own_secret)
        router.setsockopt(zmq.ZAP_DOMAIN, b"hogbatch")
        router.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        self._failures = router.get_monitor_socket(FAILURES)

    @property
    def sockets(self) -> tuple[Socket, Socket]:
        """When one of them is readable, `attend` has something to do."""
        return self._questions, self._failures

    def attend(self) -> None:
        """Say who may come in, and count who may not; without waiting."""
        for _ in range(MAX_AT_ONCE):
            if not (self._answer() or self._count()):
                return

    def _answer(self) -> bool:
        try:
            version, request, _, _, _, mechanism, *key = self._questions.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        known = (version, mechanism, key) == (VERSION, CURVE, [self._admitted])
        verdict = (b"200", b"OK") if known else (b"400", b"unknown key")
        self._questions.send_multipart([VERSION, request, *verdict, b"", b""])
        return True

    def _count(self) -> bool:
        try:
            self._failures.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        self.turned_away += 1
        return True


def show_keys(dealer: Socket, keys: Keys) -> None:
    """Have `dealer`, which is not connected yet, come in with the keys of a run."""
    dealer.setsockopt(zmq.CURVE_SERVERKEY, keys.server.encode())
    dealer.setsockopt(zmq.CURVE_PUBLICKEY, keys.public.encode())
    dealer.setsockopt(zmq.CURVE_SECRETKEY, keys.secret.encode())
