import pytest

from hogbatch.views.report.markup import element, joined, text

HOSTILE = "<script>alert('1')</script>&\"\x00\x1b[2J\u202e"
ESCAPED = "&lt;script&gt;alert(&#x27;1&#x27;)&lt;/script&gt;&amp;&quot;\\x00\\x1b[2J\\u202e"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (text(HOSTILE), ESCAPED),
        (element("p", HOSTILE, title=HOSTILE), f'<p title="{ESCAPED}">{ESCAPED}</p>'),
        (element("p", element("b", "a & b"), " c"), "<p><b>a &amp; b</b> c</p>"),
        (joined([element("b"), "<"]), "<b></b>&lt;"),
        (element("g", class_="c", role=None, aria_label="x"), '<g class="c" aria-label="x"></g>'),
    ],
)
def test_only_what_is_not_markup_is_escaped(found, expected):
    assert found == expected
