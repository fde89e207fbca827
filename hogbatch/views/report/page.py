"""The HTML page: one file without scripts and without any link to another file."""

from collections.abc import Sequence
from importlib import resources
from typing import Final

from hogbatch.views.report import tables
from hogbatch.views.report.chart import Chart, chart_settings
from hogbatch.views.report.figures import comparison_figures, run_figures, timeline
from hogbatch.views.report.markup import Markup, element, joined
from hogbatch.views.report.reported import MARK, Predictions, ReportedRun, ReportTable

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
DARKEST: Final = 0.35  # opacity of the colour behind a number


def page(runs: Sequence[ReportedRun], version: str) -> str:
    """The report of one or more runs, made by this version of hogbatch."""
    title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    with chart_settings():
        body = _sections(runs[0]) if len(runs) == 1 else _several(runs)
    style = resources.files("hogbatch.views.report").joinpath("style.css")
    head = joined(
        [
            Markup('<meta charset="utf-8">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
            Markup(MARK),
            Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            element("title", f"{title} - hogbatch report"),
            element("style", Markup(style.read_text(encoding="utf-8"))),
        ]
    )
    header = element("header", element("p", "hogbatch report"), element("h1", title))
    footer = element("footer", f"hogbatch {version}")
    content = element("body", header, element("main", *body), footer)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n{content}</html>\n'


def _several(runs: Sequence[ReportedRun]) -> list[Markup]:
    """The sections of several runs, below them those of each, folded."""
    return [
        _section("Results", table_html(tables.results_table(runs))),
        _section("Comparison", _figures(comparison_figures(runs))),
        _section("Settings that differ", table_html(tables.differing_table(runs))),
        *(
            element("details", element("summary", element("h2", run.name)), *_sections(run, "h3"))
            for run in runs
        ),
    ]


def _sections(run: ReportedRun, level: str = "h2") -> list[Markup]:
    events = [figure_html(timeline(run.run)), table_html(tables.event_table(run))]
    columns = tables.column_table(run.run), tables.importance_table(run)
    parts = {
        "Result": [table_html(tables.result_table(run))],
        "Figures": [_figures(run_figures(run))],
        "Events": [element("div", *events, class_="beside")],
        "Workers": [table_html(tables.worker_table(run))],
        "Predictions": _predictions(run.predictions),
        "Columns": [table_html(table) for table in columns if table.rows],
        "Settings": [table_html(tables.settings_table(run))],
        "Environment": [table_html(tables.environment_table(run.run))],
    }
    return [_section(title, *parts[title], level=level) for title in parts if parts[title]]


def _section(title: str, *content: Markup, level: str = "h2") -> Markup:
    return element("section", element(level, title), *content)


def _predictions(found: Predictions) -> list[Markup]:
    if found.left_out:
        return [element("p", f"Left out: {found.left_out}", class_="note")]
    parts = [
        table_html(each) if isinstance(each, ReportTable) else figure_html(each)
        for each in found.shown
    ]
    return [element("div", *parts, class_="beside")] if parts else []


def _figures(charts: Sequence[Chart]) -> Markup:
    return element("div", *map(figure_html, charts), class_="figures")


def figure_html(chart: Chart) -> Markup:
    """A figure with its title and what it shows; or why it is empty."""
    drawing = chart.svg() or element("p", chart.empty, class_="empty")
    note = element("p", chart.note, class_="note")
    return element("figure", element("figcaption", chart.title), drawing, note)


def table_html(table: ReportTable) -> Markup:
    """A table that scrolls in its own box, with its note; only the note if it has no rows."""
    note = element("p", table.note, class_="note") if table.note else Markup("")
    if not table.rows:
        return note or element("p", "None.", class_="note")
    cells = [
        element("th", name, scope="col", class_="number" if column in table.numeric else None)
        for column, name in enumerate(table.header)
    ]
    head = element("thead", element("tr", *cells)) if any(table.header) else ""
    rows = (_row(table, number) for number in range(len(table.rows)))
    found = element("table", element("caption", table.title), head, element("tbody", *rows))
    attributes = {"tabindex": "0", "role": "region", "aria_label": table.title}
    return element("div", element("div", found, class_="scroll", **attributes), note)


def _row(table: ReportTable, number: int) -> Markup:
    kinds = ["number" if column in table.numeric else None for column in range(len(table.header))]
    shades = dict(enumerate(table.shades[number], 1)) if table.shades else {}
    heading, *rest = table.rows[number]
    kind = "beneath" if number in table.beneath else kinds[0]
    cells = [element("th", heading, scope="row", class_=kind)]
    for column, content in enumerate(rest, 1):
        opacity = DARKEST * shades.get(column, 0)
        style = f"background: rgba(0, 103, 168, {opacity:.2f})" if column in shades else None
        cells.append(element("td", content, class_=kinds[column], style=style))
    return element("tr", *cells)
