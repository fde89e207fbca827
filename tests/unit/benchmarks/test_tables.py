"""The benchmark of raw tables, on small ones."""

import pandas as pd
import pytest

from benchmarks.tables import __main__ as tables
from benchmarks.tables.cases import TableCase, cases
from benchmarks.tables.peer import peer, with_numbers


def frame():
    """Forty rows with a gap, whose label follows from the name."""
    return pd.DataFrame(
        {
            "size": [1.0, None, 3.0, 4.0] * 10,
            "name": ["u", "v", "u", "v"] * 10,
            "day": ["2024-01-01", "2024-01-02"] * 20,
            "label": ["no", "yes"] * 20,
        }
    )


CASE = TableCase(frame, "label", True, dates=("day",), splits=2)


def test_the_peer_learns_from_names_gaps_and_dates():
    features = with_numbers(CASE, frame()).drop(columns="label")
    assert features.day.diff().iloc[1] == 86_400
    model = peer(CASE, features).fit(features, frame().label)
    assert model.score(features, frame().label) == 1


def test_the_peer_learns_from_words():
    texts = pd.DataFrame({"words": ["a good day", "a bad day"] * 10})
    case = TableCase(lambda: texts, "label", True, text="words")
    labels = ["good", "bad"] * 10
    assert peer(case, texts).fit(texts, labels).score(texts, labels) == 1
    assert case.flags == ["--label", "label", "--text", "words"]


@pytest.mark.parametrize(("wrong", "verdict"), [(0, "not lower"), (2, "LOWER")])
def test_a_lower_score_is_named(monkeypatch, wrong, verdict):
    def predictions(case, table, train, test, seed):
        labels = table[case.label].iloc[test].to_numpy(copy=True)
        labels[:wrong] = ["maybe"] * wrong
        return labels

    monkeypatch.setattr(tables, "_predictions", predictions)
    result = {"set": "small", **tables.compare(CASE, frame())}
    assert result["theirs"] == [1, 1] and tables.line(result).endswith(f": {verdict}")


def test_every_bundled_table_has_its_label():
    for name in ("iris", "wine", "cancer", "diabetes"):
        case = cases(None)[name]
        assert case.label in case.load()
