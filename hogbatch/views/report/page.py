"""The HTML page: one file without scripts and without any link to another file."""

from collections.abc import Sequence
from importlib import resources
from typing import Final

from hogbatch.views.report.bars import bars_svg, timeline_svg
from hogbatch.views.report.comparison import (
    comparison_figures,
    differing_table,
    results_table,
)
from hogbatch.views.report.figure import (
    MAX_POINTS,
    BarChart,
    Curve,
    Figure,
    Look,
    Plot,
    ReportTable,
    Style,
    Timeline,
)
from hogbatch.views.report.markup import Markup, element, joined, shortened, text
from hogbatch.views.report.plots import plot_svg, swatch
from hogbatch.views.report.reported import LeftOut, Quality, ReportedRun
from hogbatch.views.report.run_figures import run_figures, timeline
from hogbatch.views.report.tables import (
    environment_table,
    event_table,
    result_table,
    settings_table,
    worker_table,
)

MARK: Final = '<meta name="generator" content="hogbatch report">'  # by which a report is recognised
FEWEST_POINTS: Final = 40  # of a curve, in a report of many runs
MAX_NAME: Final = 60  # characters in a legend
SHADES: Final = 5  # of the cells of a confusion matrix
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def page(runs: Sequence[ReportedRun], version: str) -> str:
    """The report of one or more runs, made by this version of hogbatch."""
    if len(runs) == 1:
        title, body = runs[0].name, _single(runs[0])
    else:
        title, body = f"{len(runs)} runs", _several(runs)
    head = joined(
        [
            Markup('<meta charset="utf-8">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
            Markup(MARK),
            Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Markup('<meta name="color-scheme" content="light dark">'),
            element("title", f"{title} - hogbatch report"),
            element("style", Markup(stylesheet())),
        ]
    )
    footer = element("footer", f"hogbatch {version}")
    header = element("header", element("p", "hogbatch report"), element("h1", title))
    main = element("main", *body)
    content = element("body", header, main, footer)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n{content}</html>\n'


def is_report(beginning: str) -> bool:
    """Whether a file that begins like this is a report."""
    return beginning.startswith("<!doctype html>") and MARK in beginning


def stylesheet() -> str:
    """The content of style.css."""
    return (
        resources.files("hogbatch.views.report").joinpath("style.css").read_text(encoding="utf-8")
    )


def _single(run: ReportedRun) -> list[Markup]:
    return [
        _section("Result", table_html(result_table(run))),
        *_sections(run, MAX_POINTS),
    ]


def _several(runs: Sequence[ReportedRun]) -> list[Markup]:
    most = max(FEWEST_POINTS, MAX_POINTS * 2 // (1 + len(runs)))
    figures = comparison_figures(runs, most)
    return [
        _section("Results", table_html(results_table(runs))),
        _section("Comparison", _figures(figures)),
        _section("Settings that differ", table_html(differing_table(runs))),
        *(_folded(run, most) for run in runs),
    ]


def _folded(run: ReportedRun, most: int) -> Markup:
    """The sections of one of several runs, folded."""
    title = element("summary", element("h2", run.name))
    sections = [_section("Result", table_html(result_table(run)), level=3)]
    return element("details", title, *sections, *_sections(run, most, level=3))


def _sections(run: ReportedRun, most: int, level: int = 2) -> list[Markup]:
    figures = run_figures(run.run, most)
    sections = [
        _section("Figures", _figures(figures), level=level),
        _section(
            "Events",
            _beside(figure_html(timeline(run.run)), table_html(event_table(run))),
            level=level,
        ),
        _section("Workers", table_html(worker_table(run)), level=level),
    ]
    if run.quality is not None:
        sections.append(_section("Predictions", *_quality(run.quality), level=level))
    return [
        *sections,
        _beside(
            _section("Settings", table_html(settings_table(run)), level=level),
            _section("Environment", table_html(environment_table(run.run)), level=level),
        ),
    ]


def _beside(*content: Markup) -> Markup:
    """Pieces beside each other, if there is space."""
    return element("div", *content, class_="beside")


def _section(title: str, *content: Markup, level: int = 2) -> Markup:
    return element("section", element(f"h{level}", title), *content)


def _quality(quality: Quality | LeftOut) -> list[Markup]:
    if isinstance(quality, LeftOut):
        return [element("p", f"Left out: {quality.reason}", class_="note")]
    most = max(max(row) for row in quality.confusion) or 1
    shades = [[round(SHADES * count / most) for count in row] for row in quality.confusion]
    matrix = table_html(confusion_table(quality), shades)
    if not quality.bins:
        return [matrix]
    bins = table_html(bin_table(quality))
    return [_beside(element("div", matrix), figure_html(calibration(quality)), bins)]


def confusion_table(quality: Quality) -> ReportTable:
    """Test rows by their true label, in rows, and their predicted label, in columns."""
    total = sum(map(sum, quality.confusion))
    correct = sum(row[n] for n, row in enumerate(quality.confusion))
    rows = tuple(
        (label, *(f"{count:,}" for count in counts), f"{counts[n] / max(1, sum(counts)):.1%}")
        for n, (label, counts) in enumerate(zip(quality.labels, quality.confusion, strict=True))
    )
    return ReportTable(
        "Predictions of the saved model on the test set",
        ("true \\ predicted", *quality.labels, "correct"),
        rows,
        frozenset(range(1, len(quality.labels) + 2)),
        note=f"{correct:,} of {total:,} test rows are predicted correctly "
        f"({correct / max(1, total):.2%}).",
    )


def calibration(quality: Quality) -> Plot:
    """The observed frequency of the second label against its predicted probability."""
    points = tuple((each.predicted, each.observed) for each in quality.bins)
    return Plot(
        "Calibration on the test set",
        "predicted probability",
        "observed fraction",
        (Curve(f"label {quality.labels[-1]}", (points,), Style.number(0)),),
        Look.FROM_ZERO,
        note=f"Test rows in ten bins by the predicted probability of label {quality.labels[-1]}; "
        "on the dashed line, predictions are as frequent as they say.",
        diagonal=True,
    )


def bin_table(quality: Quality) -> ReportTable:
    """The bins of the calibration."""
    return ReportTable(
        "Bins of the calibration",
        ("predicted", "observed", "test rows"),
        tuple((f"{b.predicted:.3f}", f"{b.observed:.3f}", f"{b.rows:,}") for b in quality.bins),
        frozenset(range(3)),
    )


def _figures(figures: Sequence[Figure]) -> Markup:
    return element("div", *map(figure_html, figures), class_="figures")


def figure_html(figure: Figure) -> Markup:
    """A figure with its title, what it shows, and its legend; or why it is empty."""
    title = element("figcaption", figure.title)
    note = element("p", figure.note, class_="note")
    drawing, legend = _drawing(figure)
    if drawing is None:
        drawing = element("p", figure.empty, class_="empty")
    return element("figure", title, drawing, legend, note)


def _drawing(figure: Figure) -> tuple[Markup | None, Markup]:
    nothing = Markup("")
    match figure:
        case Plot() if figure.drawn:
            return plot_svg(figure), _legend(figure)
        case BarChart() if figure.bars:
            return bars_svg(figure), nothing
        case Timeline() if figure.lanes:
            return timeline_svg(figure), nothing
    return None, nothing


def _legend(plot: Plot) -> Markup:
    named = ((curve, shortened(curve.name, MAX_NAME)) for curve in plot.drawn)
    items = (element("li", swatch(curve.style), name) for curve, name in named)
    return element("ul", *items, class_="legend")


def table_html(table: ReportTable, shades: Sequence[Sequence[int]] = ()) -> Markup:
    """A table that scrolls in its own box; `shades` of the cells after the first of each row."""
    note = element("p", table.note, class_="note") if table.note else Markup("")
    if not table.rows:
        return note or element("p", "None.", class_="note")
    head = Markup("")
    if any(table.header):
        cells = (
            element("th", name, scope="col", class_=_aligned(table, n))
            for n, name in enumerate(table.header)
        )
        head = element("thead", element("tr", *cells))
    rows = (_row(table, number, shades) for number in range(len(table.rows)))
    caption = element("caption", table.title)
    kind = "pairs" if len(table.header) == 2 else None
    found = element("table", caption, head, element("tbody", *rows), class_=kind)
    box = element(
        "div", found, class_="scroll", tabindex="0", role="region", aria_label=table.title
    )
    return element("div", box, note)


def _row(table: ReportTable, number: int, shades: Sequence[Sequence[int]]) -> Markup:
    first, *rest = table.rows[number]
    marked = [swatch(table.styles[number], line=False)] if table.styles else []
    kind = "beneath" if number in table.beneath else _aligned(table, 0)
    cells = [element("th", *marked, first, scope="row", class_=kind)]
    for column, content in enumerate(rest, 1):
        kinds = [_aligned(table, column) or ("words" if column == table.words else "")]
        if shades and column <= len(shades[number]):
            kinds.append(f"shade{shades[number][column - 1]}")
        kind = " ".join(filter(None, kinds)) or None
        cells.append(element("td", text(content), class_=kind))
    return element("tr", *cells)


def _aligned(table: ReportTable, column: int) -> str | None:
    return "number" if column in table.numeric else None
