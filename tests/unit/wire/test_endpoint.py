import pytest
import zmq

from hogbatch.errors import UsageError
from hogbatch.wire.endpoint import Endpoint, parse_listen
from hogbatch.wire.sockets import Router


@pytest.mark.parametrize(
    ("text", "shown", "reached"),
    [
        ("tcp://127.0.0.1:5555", "tcp://127.0.0.1:5555", "tcp://127.0.0.1:7"),
        ("tcp://localhost:0", "tcp://127.0.0.1:*", "tcp://127.0.0.1:7"),
        ("tcp://*:*", "tcp://0.0.0.0:*", "tcp://127.0.0.1:7"),
        ("tcp://10.1.2.3:65535", "tcp://10.1.2.3:65535", "tcp://10.1.2.3:7"),
        ("tcp://[::1]:80", "tcp://[::1]:80", "tcp://[::1]:7"),
        ("tcp://[::]:*", "tcp://[::]:*", "tcp://[::1]:7"),
    ],
)
def test_an_endpoint_is_an_address_and_a_port(text, shown, reached):
    endpoint = parse_listen(text, insecure=False)
    assert str(endpoint) == shown
    assert str(endpoint.reached(7)) == reached


@pytest.mark.parametrize(
    "text",
    [
        *("", "tcp://", "127.0.0.1:5555", "ipc://x", "inproc://x", "tcp://127.0.0.1"),
        *("tcp://127.0.0.1:", "tcp://:1", "tcp://127.0.0.1:65536", "tcp://127.0.0.1:-1"),
        *("tcp://example.org:5555", "tcp://256.0.0.1:1", "tcp://::1:1", "tcp://[127.0.0.1]:1"),
        *("tcp://127.0.0.1:1;x", "tcp://127.0.0.1:\u0661", " tcp://127.0.0.1:1"),
    ],
)
def test_anything_else_is_refused_with_an_example(text):
    with pytest.raises(UsageError, match=r"expects tcp://IP:PORT, as in tcp://127\.0\.0\.1:5555"):
        Endpoint.parse(text)


def test_insecure_without_listen_is_refused():
    with pytest.raises(UsageError, match="--insecure requires --listen"):
        parse_listen(None, insecure=True)
    assert parse_listen(None, insecure=False) is None


@pytest.mark.parametrize("listen", ["tcp://0.0.0.0:*", "tcp://127.0.0.1:*"])
def test_tcp_without_keys_is_refused_unless_that_is_asked_for(tmp_path, monkeypatch, listen):
    monkeypatch.setattr(zmq, "has", lambda capability: False)
    with pytest.raises(
        UsageError,
        match=rf"--listen {listen[:-1]}\* would accept unauthenticated connections.*--insec",
    ):
        Router(tmp_path, listen=listen)
    router = Router(tmp_path, listen=listen, insecure=True)
    assert router.keys is None and router.address.startswith("tcp://127.0.0.1:")
    router.close()


@pytest.mark.parametrize("listen", ["tcp://192.0.2.1:*", "{taken}"])
def test_an_address_that_cannot_be_had_is_refused(tmp_path, listen):
    holder = Router(tmp_path, listen="tcp://127.0.0.1:0")
    with pytest.raises(UsageError, match=r"--listen tcp://.*(in use|assign).*; choose another"):
        Router(tmp_path, listen=listen.format(taken=holder.address))
    holder.close()
