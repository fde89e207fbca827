"""The page: complete, harmless and without links, for runs in any state."""

from html.parser import HTMLParser

import numpy as np
import pytest

from hogbatch.events.event import Resumed, WorkerLost
from hogbatch.views.report.chart import chart_settings
from hogbatch.views.report.page import page
from hogbatch.views.report.predictions import calibration, confusion_table
from hogbatch.views.report.reported import MARK, Predictions
from tests.support.run_events import (
    ON_SERVERS,
    ended,
    evaluation,
    event,
    joined,
    ready,
    started,
)
from tests.unit.views.report.conftest import TWO_WORKERS, reported
from tests.unit.views.report.test_markup import HOSTILE

FORBIDDEN = {"script", "link", "iframe", "object", "embed", "img", "base", "form"}
FACTS = ("processor", "driver")
LINKS = {"src", "href", "xlink:href", "srcset", "action", "data", "poster", "background"}


class ParsedPage(HTMLParser):
    """The tags, attributes and text of a page; fails if tags are not nested."""

    def __init__(self, content):
        super().__init__()
        self.tags, self.attributes, self.words, self._open = [], [], [], []
        self.feed(content)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] != "style":
            self.words.append(data)

    @property
    def text(self):
        return " ".join(self.words)


def parsed(*runs):
    """The page of these runs, which is checked to be harmless."""
    content = page(runs, "0.1.0")
    assert MARK in content[:2048] and content.startswith("<!doctype html>")
    found = ParsedPage(content)
    assert not FORBIDDEN & {*found.tags}
    for name, value in found.attributes:
        assert name not in LINKS or value.startswith("#"), "a link within the page"
        assert not name.startswith("on") and value.count("url(") == value.count("url(#")
    assert "://" not in content and "@import" not in content
    head, _, _ = content.partition("<style")
    assert "default-src 'none'; style-src 'unsafe-inline'" in head, "before the page has anything"
    return found


def test_a_run_has_all_figures_and_tables(two_workers):
    found = parsed(two_workers)
    assert found.tags.count("figure") == 7
    assert found.tags.count("title") == 8, "that of the page and of each figure"
    assert found.tags.count("caption") == found.tags.count("table")
    for words in ("finished", "AMD EPYC", "NVIDIA H100", "8.59 GB", "64,64", "it is slow"):
        assert words in found.text
    assert "cpu-0 was lost: process 7 was killed" in found.text


def test_everything_from_a_run_is_escaped():
    events = (
        started(data=HOSTILE, network=HOSTILE, environment=dict.fromkeys(FACTS, HOSTILE)),
        *(joined(HOSTILE, HOSTILE), ready(HOSTILE)),
        evaluation(1.0, 1000, 0.5, utilization={HOSTILE: 0.5}, validation_values={HOSTILE: 0.5}),
        *(WorkerLost(HOSTILE, HOSTILE), ended("failed", HOSTILE)),
    )
    texts = {"name": HOSTILE, "settings": {HOSTILE: HOSTILE, "list": [HOSTILE]}}
    true, predicted = np.array([0, 0, 0, 0, 1, 1]), np.array([0, 0, 0, 1, 1, 1])
    with chart_settings():
        chart, bins = calibration(HOSTILE, predicted * 0.9, true, "test")
    shown = [confusion_table((HOSTILE, "b"), predicted, true, "test"), chart, bins]
    run = reported(*events, **texts, predictions=Predictions(shown))
    found = parsed(run, reported(**texts, predictions=Predictions(left_out=HOSTILE)))
    assert "<script>alert('1')</script>" in found.text
    assert "5 of 6 test rows are predicted correctly (83.33%)." in found.text


def test_workers_of_servers_are_indented():
    found = parsed(reported(*ON_SERVERS))
    assert found.attributes.count(("class", "beneath")) == 4


STATES = [
    ((), "preparing"),
    ((started(),), "There is no evaluation yet."),
    ((started(validation_rows=0, test_rows=0), evaluation(0.0, 0, None)), "no test rows"),
    ((started(rehearsed="h100"), evaluation(1.0, 10, 0.5)), "all times are simulated"),
    ((started(), evaluation(1.0, 10, None, train_loss=None)), "There is no evaluation yet."),
    ((started(), ended("failed", "no worker is left")), "failed: no worker is left"),
    ((started(environment={"versions": 3, "x": [1, 2]}),), "x 1,2"),
    ((started(environment={"versions": 3}),), "has not recorded its environment"),
    ((*TWO_WORKERS, event(Resumed, "c", 0, [], 0, 0.0)), "resumed from c"),
    ((started(), evaluation(1.0, 10, 1e308)), "waiting"),
]


@pytest.mark.parametrize(("events", "words"), STATES)
def test_a_run_in_any_state_has_a_page(events, words):
    assert words in parsed(reported(*events)).text


def test_runs_in_all_states_are_compared():
    """One page, because drawing the figures takes most of the time."""
    runs = [reported(*events, name=str(number)) for number, (events, _) in enumerate(STATES)]
    text = parsed(*runs, reported(*TWO_WORKERS, name="other")).text
    assert all(words in text for _, words in STATES) and "11 runs" in text


def test_damaged_lines_and_settings_are_mentioned():
    found = parsed(reported(damaged=3, settings_problem="config.toml: the file is damaged"))
    assert "3 lines of events.jsonl, ignored" in found.text
    assert "the file is damaged" in found.text


def test_several_runs_are_folded_below_their_comparison(two_workers):
    found = parsed(two_workers, reported(*TWO_WORKERS, name="b"), reported(name="c"))
    assert found.tags.count("details") == found.tags.count("summary") == 3
    assert found.tags.count("figure") == 4 + 2 * 7 + 6
