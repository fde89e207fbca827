import pytest

from hogbatch.views.report.markup import coordinate, element, joined, shortened, text

HOSTILE = "<script>alert('1')</script>&\"\x00\x1b[2J\u202e"
ESCAPED = "&lt;script&gt;alert(&#x27;1&#x27;)&lt;/script&gt;&amp;&quot;\\x00\\x1b[2J\\u202e"
PATH = "L1 2" * 10_000


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (text(HOSTILE), ESCAPED),
        (element("p", HOSTILE, title=HOSTILE), f'<p title="{ESCAPED}">{ESCAPED}</p>'),
        (element("p", element("b", "a & b"), " c"), "<p><b>a &amp; b</b> c</p>"),
        (joined([element("b"), "<"]), "<b></b>&lt;"),
        (
            element("g", class_="c", x=1.04, r=None, aria_label="x"),
            '<g class="c" x="1" aria-label="x"></g>',
        ),
        (element("path", d=PATH), f'<path d="{PATH}"></path>'),
    ],
)
def test_only_what_is_not_markup_is_escaped(found, expected):
    assert found == expected


def test_positions_have_one_decimal():
    values = (1.0, 1.25, -0.01, -3.14, 100.0)
    assert list(map(coordinate, values)) == ["1", "1.2", "0", "-3.1", "100"]


def test_a_long_name_loses_its_middle():
    assert shortened("short", 5) == "short"
    assert shortened("20261123-143014-a9a-8cfc", 9) == "2026…8cfc"
