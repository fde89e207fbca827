import math

import pytest

from hogbatch.views.report.chart import Chart, chart_settings


@pytest.fixture
def chart():
    with chart_settings():
        yield Chart("a < b", empty="Nothing.")


def y_values(chart):
    return [None if math.isnan(y) else y for y in chart.axes.lines[-1].get_ydata()]


def test_missing_values_are_gaps(chart):
    chart.line("a", enumerate([1.0, None, 3.0, math.nan, math.inf, 1e300]), 0)
    assert y_values(chart) == [1.0, None, 3.0, None, None, None]
    chart.line("b", [(math.inf, 1.0), (1.0, 2.0)], 0)
    assert y_values(chart) == [2.0]


def test_a_chart_without_values_is_not_drawn(chart):
    chart.line("a", [(0.0, None), (1.0, math.nan)], 0)
    chart.line("b", [], 0)
    assert chart.svg() is None


def test_a_long_name_is_without_its_middle():
    name = Chart.name("\x00" * 100 + "end")
    assert name.startswith("\\x00") and name.endswith("end") and len(name) < 60


def test_names_stay_text(chart):
    for name in ("$\\frac{$", "_hidden", "<script>", "数据\x00"):
        chart.line(name, [(0.0, 1.0)], 0)
        chart.add_row(name)
    drawing = chart.svg()
    for shown in ("$\\frac{$", "_hidden", "&lt;script&gt;", "数据\\x00"):
        assert drawing.count(shown) == 2, "in the legend, and beside the row"
    assert drawing.startswith("<svg ") and "<title>a &lt; b</title>" in drawing


@pytest.mark.parametrize(
    ("values", "scale"),
    [([1.0, 31.0], "log"), ([1.0, 29.0], "linear"), ([0.0, 31.0], "linear"), ([], "linear")],
)
def test_an_axis_is_logarithmic_if_values_differ_by_a_large_factor(chart, values, scale):
    chart.line("a", enumerate(values), 0)
    chart.log_if_wide()
    assert chart.axes.get_yscale() == scale
    assert bool(chart.svg()) == bool(values)


def test_a_long_curve_has_few_markers_and_loses_points_that_cannot_be_seen(chart):
    chart.line("a", ((n, n % 2) for n in range(100_000)), 0)
    assert chart.svg().count("<use ") < 40 and len(chart.svg()) < 60_000
