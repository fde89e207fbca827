import pytest

from hogbatch.views.live.capabilities import Capabilities, Size, capabilities, is_plain

XTERM = {"TERM": "xterm-256color"}


@pytest.mark.parametrize(
    ("environment", "size", "plain"),
    [
        (XTERM, (80, 24), False),
        (XTERM, (40, 10), False),
        (XTERM, (39, 24), True),
        (XTERM, (80, 9), True),
        (XTERM, (0, 0), True),
        ({}, (80, 24), True),
        ({"TERM": "dumb"}, (80, 24), True),
        ({**XTERM, "CI": "true"}, (80, 24), True),
    ],
)
def test_a_view_needs_a_terminal_of_sufficient_size(environment, size, plain):
    assert is_plain(environment, Size(*size)) == plain


@pytest.mark.parametrize(
    ("environment", "encoding", "able"),
    [
        (XTERM, "utf-8", (True, True)),
        (XTERM, "ascii", (True, False)),
        (XTERM, "iso-8859-1", (True, False)),
        (XTERM, "none such", (True, False)),
        ({"TERM": "linux"}, "utf-8", (True, False)),
        ({**XTERM, "NO_COLOR": "1"}, "utf-8", (False, True)),
        ({**XTERM, "NO_COLOR": ""}, "utf-8", (True, True)),
    ],
)
def test_colour_and_unicode(environment, encoding, able):
    assert capabilities(environment, encoding) == Capabilities(*able)
