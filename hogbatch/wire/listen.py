"""Where the control plane may listen for workers that come over tcp."""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Self

from hogbatch.errors import UsageError

NAMES = {"*": "0.0.0.0", "localhost": "127.0.0.1"}
ENDPOINT = re.compile(r"tcp://(?:\[([^\]]+)\]|([^:\[\]]+)):(\d{1,5}|\*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address of this machine and a port; 0 for any that is free."""

    host: IPv4Address | IPv6Address
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read tcp://HOST:PORT; UsageError if it is not that.

        HOST is an IP address (version 6 in brackets), localhost, or * for all of this machine;
        PORT may be *. No other names: they would have to be looked up, and may change meanwhile.
        """
        found = ENDPOINT.fullmatch(text)
        try:
            if found is None:
                raise ValueError
            six, host, port = found.groups()
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
        """Where workers of this machine find it, once it has got `port`."""
        if not self.host.is_unspecified:
            return Endpoint(self.host, port)
        return Endpoint(ip_address("::1" if self.host.version == 6 else "127.0.0.1"), port)


def check_listen(listen: str | None, insecure: bool) -> Endpoint | None:
    """The endpoint that the flags ask for, None for the socket without a name."""
    if listen is None and insecure:
        raise UsageError(
            "--insecure is about --listen alone; give --listen tcp://IP:PORT, or leave it out"
        )
    return None if listen is None else Endpoint.parse(listen)
