"""The tcp endpoint on which the control plane listens for workers (--listen)."""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Self

from hogbatch.errors import UsageError

NAMES = {"*": "0.0.0.0", "localhost": "127.0.0.1"}
ENDPOINT = re.compile(r"tcp://(?:\[([^\]]+)\]|([^:\[\]]+)):(\d{1,5}|\*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address of this machine and a port; port 0 means any free port."""

    host: IPv4Address | IPv6Address
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse tcp://HOST:PORT; UsageError if `text` has another form.

        HOST is an IP address (IPv6 in brackets), localhost, or * for all addresses of this
        machine; PORT may be *. Other host names are not accepted: they would have to be resolved,
        and the result may change.
        """
        match = ENDPOINT.fullmatch(text)
        try:
            if match is None:
                raise ValueError
            six, host, port = match.groups()
            address = IPv6Address(six) if six else ip_address(NAMES.get(host, host))
            number = 0 if port == "*" else int(port)
            if number > 65535:
                raise ValueError
        except ValueError:
            raise UsageError(
                f"--listen expects tcp://IP:PORT, as in tcp://127.0.0.1:5555 or tcp://[::1]:0;"
                f" got {text!r}"
            ) from None
        return cls(address, number)

    def __str__(self) -> str:
        host = f"[{self.host}]" if self.host.version == 6 else str(self.host)
        return f"tcp://{host}:{self.port or '*'}"

    def reached(self, port: int) -> "Endpoint":
        """The endpoint for workers on this machine, once the socket is bound to `port`."""
        if not self.host.is_unspecified:
            return Endpoint(self.host, port)
        return Endpoint(ip_address("::1" if self.host.version == 6 else "127.0.0.1"), port)


def parse_listen(listen: str | None, insecure: bool) -> Endpoint | None:
    """Parse the flags --listen and --insecure; None means the unnamed Unix socket."""
    if listen is None and insecure:
        raise UsageError(
            "--insecure requires --listen; give --listen tcp://IP:PORT, or omit --insecure"
        )
    return None if listen is None else Endpoint.parse(listen)
