import pytest

from hogbatch.views.live.choose import is_plain

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
    assert is_plain(environment, size) == plain
