"""The plane of NIXL without other processes; see also tests/integration/test_nixl.py."""

import sys

import pytest

from hogbatch.cluster.buffers import ExchangeBuffers
from hogbatch.cluster.planes import nixl
from hogbatch.cluster.planes.base import PlaneError


def test_why_it_cannot_be_used_is_a_sentence(monkeypatch):
    monkeypatch.setattr(nixl, "find_spec", lambda name: None)
    assert "pip install --no-deps nixl" in nixl.unavailable()
    monkeypatch.setattr(nixl, "find_spec", lambda name: True)
    monkeypatch.setitem(sys.modules, "nixl", None)  # its import raises ImportError
    assert "cannot be loaded" in nixl.unavailable()


@pytest.mark.slow
def test_every_membership_has_an_address_of_its_own(missing):
    if reason := nixl.unavailable():
        missing("nixl", reason)
    buffers = ExchangeBuffers.create(1000)
    plane = nixl.NixlPlane(buffers)
    buffers.merged[:] = 3.0
    addresses = []
    for _ in range(3):
        addresses.append(plane.address)
        assert plane.address == addresses[-1]
        plane.connect({})
    assert len(set(addresses)) == 3
    with pytest.raises(PlaneError, match="not connected"):
        plane.start(1, (0, 64), 0, b"note")
    plane.close()
    assert (buffers.merged == 3.0).all()
    buffers.close()
