import pytest

from hogbatch.views.report.markup import Markup, coordinate, element, joined, shortened, text

HOSTILE = "<script>alert('1')</script>&\"\x00\x1b[2J\u202e"
ESCAPED = "&lt;script&gt;alert(&#x27;1&#x27;)&lt;/script&gt;&amp;&quot;\\x00\\x1b[2J\\u202e"


def test_text_and_attributes_are_escaped():
    assert text(HOSTILE) == ESCAPED
    assert element("p", HOSTILE, title=HOSTILE) == f'<p title="{ESCAPED}">{ESCAPED}</p>'


def test_markup_is_not_escaped_again():
    inner = element("b", "a & b")
    assert element("p", inner, " c") == "<p><b>a &amp; b</b> c</p>"
    assert isinstance(joined([inner, "<"]), Markup) and joined([inner, "<"]).endswith("&lt;")


def test_attributes_have_names_of_html():
    found = element("path", class_="line c0", stroke_dasharray=None, aria_label="x", x=1.04)
    assert found == '<path class="line c0" aria-label="x" x="1"></path>'


def test_a_long_attribute_is_complete():
    path = "L1 2" * 10_000
    assert path in element("path", d=path)


@pytest.mark.parametrize(
    ("value", "shown"), [(1.0, "1"), (1.25, "1.2"), (-0.01, "0"), (-3.14, "-3.1"), (100.0, "100")]
)
def test_positions_have_one_decimal(value, shown):
    assert coordinate(value) == shown


def test_a_long_name_loses_its_middle():
    assert shortened("short", 5) == "short"
    assert shortened("20261123-143014-a9a-8cfc", 9) == "2026…8cfc"
