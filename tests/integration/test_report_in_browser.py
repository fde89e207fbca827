"""Reports in Chromium, on narrow and wide screens, light and dark."""

import shutil
from contextlib import closing
from itertools import combinations

import pytest

from hogbatch.views.report.page import page
from hogbatch.views.report.reported import Bin, Quality
from tests.support.fault_injection import WITHIN_S
from tests.unit.views.report.conftest import TWO_WORKERS, reported
from tests.unit.views.status.conftest import ended, evaluation, event, joined, lease, ready, started

WITHIN_MS = 1000 * WITHIN_S
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
LONG = "a-very-long-name-without-any-place-to-break-it-" * 4
TEXT_CONTRAST, LINE_CONTRAST = 4.5, 3.0  # WCAG 2.1, 1.4.3 and 1.4.11
SHADES = tuple(tuple(100 if n == m else abs(n - m) for m in range(20)) for n in range(20))

# The texts of figures, with their boxes relative to that of the figure.
TEXTS = """() => [...document.querySelectorAll("figure > svg")].flatMap((svg) => {
  const box = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].map((text) => {
    const own = text.getBoundingClientRect();
    return {figure: svg.getAttribute("aria-label").slice(0, 40), text: text.textContent,
            left: own.left - box.left, top: own.top - box.top, right: own.right - box.left,
            bottom: own.bottom - box.top, width: box.width, height: box.height};
  });
})"""
# [colour, colours behind it from the innermost to the page] of every text and of every curve.
COLOURS = """() => {
  const behind = (element) => {
    const found = [];
    for (let each = element; each; each = each.parentElement)
      found.push(getComputedStyle(each).backgroundColor);
    return found;
  };
  const seen = (element, property) =>
    [getComputedStyle(element)[property], behind(element), element.textContent.slice(0, 30)];
  const words = [...document.querySelectorAll("h1,h2,h3,p,li,th,td,figcaption,summary,footer")];
  return {
    text: [...words.map((each) => seen(each, "color")),
           ...[...document.querySelectorAll("svg text")].map((each) => seen(each, "fill"))],
    line: [...document.querySelectorAll(".line,.bar,.thick,.marker,.cross")].map(
      (each) => seen(each, each.matches(".bar,.marker") ? "fill" : "stroke")),
  };
}"""


def many_events():
    """A run with long names, many workers, large numbers and every kind of event."""
    events = [started(data=LONG, train_rows=10**9, epochs=None)]
    for n in range(14):
        events += [joined(f"{LONG}{n}", "gpu:0"), ready(f"{LONG}{n}", 2**n)]
        events.append(lease(1.0 + n, 0, 10**8, f"{LONG}{n}", 2**n, updates=10**6, staleness=n))
    for n in range(1, 40):
        used = {f"{LONG}{k}": (n + k) / 50 for k in range(14)}
        loss = 2500 / n**2
        events.append(evaluation(12345.678 * n, 10**8 * n, loss, utilization=used))
        events.append(event("checkpoint", epoch=0, rows=n, seconds=12345.678 * n))
    events.append(event("worker_parked", worker=f"{LONG}3", reason=LONG))
    events.append(event("worker_lost", worker=f"{LONG}2", reason=f"{LONG} {LONG}"))
    return [*events, ended("failed", LONG)]


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Paths of reports by name."""
    classes = Quality(tuple(f"{LONG}{n}" for n in range(20)), SHADES)
    binary = Quality(("0", "1"), ((90, 10), (5, 50)), (Bin(0.1, 0.2, 10), Bin(0.9, 0.95, 9)))
    usual = reported(*TWO_WORKERS, settings={"data": "a9a", "seed": 1}, quality=binary)
    extreme = reported(*many_events(), name=LONG, settings={LONG: LONG}, quality=classes)
    new = reported(started(), name="new", settings={"data": "a9a", "seed": 2})
    pages = {"usual": [usual], "extreme": [extreme], "several": [usual, extreme, new]}
    folder = tmp_path_factory.mktemp("reports")
    for name, runs in pages.items():
        (folder / f"{name}.html").write_text(page(runs, "0.1.0"), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in pages}


@pytest.fixture(scope="module")
def browser(missing):
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        missing("browser", f"none of {', '.join(BROWSERS)} is installed; scripts/browser does it")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        missing("browser", str(error))
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-dev-shm-usage"]  # as root, and in containers
        start = playwright.chromium.launch
        with closing(start(executable_path=path, args=flags, timeout=WITHIN_MS)) as launched:
            yield launched


@pytest.fixture(params=["usual", "extreme", "several"])
def opened(request, browser, reports):
    """Open the report with the given width and colour scheme, with nothing folded."""
    contexts, problems = [], []

    def call(width, scheme):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        context.set_default_timeout(WITHIN_MS)
        tab = context.new_page()
        tab.on("console", lambda message: problems.append(message.text))
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("request", lambda each: problems.extend([each.url] * (each.url != tab_url)))
        tab_url = reports[request.param].as_uri()
        tab.goto(tab_url)
        tab.evaluate("document.querySelectorAll('details').forEach((each) => each.open = true)")
        return tab

    yield call
    for context in contexts:
        context.close()
    assert problems == []


@pytest.mark.parametrize("width", [360, 1440])
def test_texts_stay_in_their_figure_and_do_not_overlap(opened, width):
    tab, figures, slack = opened(width, "light"), {}, 0.5  # pixels
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    texts = tab.evaluate(TEXTS)
    assert len(texts) > 20
    for each in texts:
        assert min(each["left"], each["top"]) >= -slack, each
        assert each["right"] <= each["width"] + slack, each
        assert each["bottom"] <= each["height"] + slack, each
        figures.setdefault((each["figure"], each["width"], each["height"]), []).append(each)
    for texts in figures.values():
        for one, other in combinations(texts, 2):
            across = min(one["right"], other["right"]) - max(one["left"], other["left"])
            down = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
            if one["text"] != other["text"]:  # another figure of equal size may have the same
                assert across < 1 or down < 4, (one, other)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_and_curves_have_contrast(opened, scheme):
    found = opened(1440, scheme).evaluate(COLOURS)
    for kind, least in (("text", TEXT_CONTRAST), ("line", LINE_CONTRAST)):
        assert found[kind]
        low = [each for each in found[kind] if contrast(each[0], each[1]) < least]
        assert low == []


def test_the_page_is_printed_in_light_colours(browser, reports):
    context = browser.new_context(color_scheme="dark")
    context.set_default_timeout(WITHIN_MS)
    tab = context.new_page()
    tab.goto(reports["usual"].as_uri())
    colour = "getComputedStyle(document.body).backgroundColor"
    assert luminance(channels(tab.evaluate(colour))) < 0.1
    tab.emulate_media(media="print")
    assert luminance(channels(tab.evaluate(colour))) > 0.9
    context.close()


def contrast(colour, behind):
    """The contrast ratio of a colour on the blended colours behind it, innermost first."""
    ground = (255.0, 255.0, 255.0, 1.0)
    for each in reversed([channels(text) for text in behind]):
        share = each[3]
        blended = [share * a + (1 - share) * b for a, b in zip(each[:3], ground[:3], strict=True)]
        ground = (*blended, 1.0)
    light, dark = sorted((luminance(channels(colour)), luminance(ground)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def channels(text):
    """Red, green, blue (0 to 255) and alpha of a computed colour."""
    values = [float(each) for each in text.partition("(")[2].rstrip(")").split(",")]
    return (*values, 1.0)[:4]


def luminance(colour):
    """The relative luminance of WCAG 2.1."""
    linear = [
        value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4
        for value in (each / 255 for each in colour[:3])
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_contrast_is_computed_as_by_wcag():
    assert contrast("rgb(0, 0, 0)", ["rgb(255, 255, 255)"]) == pytest.approx(21)
    grey = contrast("rgb(118, 118, 118)", ["rgba(0, 0, 0, 0)", "rgb(255, 255, 255)"])
    assert grey == pytest.approx(4.54, abs=0.01)
