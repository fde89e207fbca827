"""Authentication of servers over tcp by the keys of the run (CurveZMQ, RFC 26; ZAP, RFC 27).

Two key pairs are generated for each run. The coordinator's secret key never leaves its process;
the servers get the keys that they need when they are started. All traffic is encrypted.
"""

from typing import Annotated, TypeAlias

import msgspec
import zmq
from zmq.utils import z85

from hogbatch.errors import UsageError

Socket: TypeAlias = "zmq.Socket[bytes]"

ZAP = "inproc://zeromq.zap.01"  # where libzmq sends authentication requests
VERSION, CURVE = b"1.0", b"CURVE"
HANDSHAKE_MS = 5000
FAILURES = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
MAX_AT_ONCE = 1000  # handshakes handled by one call of `process`


Key = Annotated[str, msgspec.Meta(min_length=40, max_length=40)]  # 32 bytes in Z85 (RFC 32)


class Keys(msgspec.Struct, frozen=True):
    """Keys that servers need to connect over tcp."""

    server: Key  # the coordinator's public key
    public: Key  # of the key pair that all servers of a run use
    secret: Key


class Authenticator:
    """Authenticates connections to the ROUTER of one run.

    Answers libzmq's authentication requests in `process`; needs no thread of its own.
    """

    def __init__(self, context: "zmq.Context[Socket]", router: Socket) -> None:
        """Generate keys and make `router`, before it is bound, require them."""
        if not zmq.has("curve"):
            raise UsageError(
                "several servers need encryption, without which this libzmq was built; install "
                "pyzmq as a wheel"
            )
        self.rejected = 0
        server, own_secret = zmq.curve_keypair()
        public, secret = zmq.curve_keypair()
        self.keys = Keys(server.decode(), public.decode(), secret.decode())
        self._worker_key = z85.decode(public)
        self._requests = context.socket(zmq.REP)
        self._requests.bind(ZAP)
        router.setsockopt(zmq.CURVE_SERVER, 1)
        router.setsockopt(zmq.CURVE_SECRETKEY, own_secret)
        router.setsockopt(zmq.ZAP_DOMAIN, b"hogbatch")
        router.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        self._failures = router.get_monitor_socket(FAILURES)

    @property
    def sockets(self) -> tuple[Socket, Socket]:
        """Sockets to poll: call `process` when one of them is readable."""
        return self._requests, self._failures

    def process(self) -> None:
        """Answer authentication requests and count rejected connections, without waiting."""
        for _ in range(MAX_AT_ONCE):
            if not (self._answer() or self._count()):
                return

    def _answer(self) -> bool:
        try:
            version, request, _, _, _, mechanism, *key = self._requests.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        known = (version, mechanism, key) == (VERSION, CURVE, [self._worker_key])
        status = (b"200", b"OK") if known else (b"400", b"unknown key")
        self._requests.send_multipart([VERSION, request, *status, b"", b""])
        return True

    def _count(self) -> bool:
        try:
            self._failures.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        self.rejected += 1
        return True


def set_keys(dealer: Socket, keys: Keys) -> None:
    """Make `dealer` authenticate with the keys of a run; call before connecting it."""
    dealer.setsockopt(zmq.CURVE_SERVERKEY, keys.server.encode())
    dealer.setsockopt(zmq.CURVE_PUBLICKEY, keys.public.encode())
    dealer.setsockopt(zmq.CURVE_SECRETKEY, keys.secret.encode())
