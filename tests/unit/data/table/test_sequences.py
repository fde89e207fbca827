"""Texts as sequences of ids."""

import numpy as np
import pytest

from hogbatch.data.table.columns import TextColumn
from hogbatch.data.table.sequences import SequenceEncoder

TEXTS = TextColumn.of(["The sea", "the SEA, the sky.", "", "a once-only Äther of the sea"])
ALL = np.arange(4)


def encoded(encoder, texts=TEXTS, rows=ALL):
    features, values = encoder.encode(texts, rows)
    assert features.tolist() == [[*range(encoder.width)]]
    return values.astype(int).tolist()


def test_words_have_ids_by_frequency_and_padding_in_front():
    """Words that occur once are unknown, id 1; id 0 is padding."""
    encoder = SequenceEncoder.fit(TEXTS, ALL, "words:4")
    assert encoder.values == ["the", "sea"] and encoder.ids == 4
    assert encoded(encoder) == [[0, 0, 2, 3], [2, 3, 2, 1], [0, 0, 0, 0], [1, 1, 1, 1]]
    assert encoded(encoder, rows=np.array([1, 0])) == [[2, 3, 2, 1], [0, 0, 2, 3]]


def test_characters_have_ids():
    texts = TextColumn.of(["aab", "bä\nä", "Ä"])
    encoder = SequenceEncoder.fit(texts, np.arange(3), "characters")
    assert (encoder.values, encoder.width) == (["ä", "a", "b"], 4)
    assert encoded(encoder, texts, np.arange(3)) == [[0, 3, 3, 4], [4, 2, 1, 2], [0, 0, 0, 2]]


def test_only_training_rows_decide_ids_and_length():
    """One long text in a thousand does not make all sequences long."""
    texts = TextColumn.of([*1000 * ["one two three"], 500 * "long ", 500 * "later "])
    encoder = SequenceEncoder.fit(texts, np.arange(1001), "words")
    assert (encoder.width, encoder.values) == (3, ["one", "two", "three", "long"])
    assert encoded(encoder, texts, np.array([1000, 1001])) == [[5, 5, 5], [1, 1, 1]]


def test_texts_without_words_have_one_step():
    texts = TextColumn.of(["", "?"])
    encoder = SequenceEncoder.fit(texts, np.arange(2), "words")
    assert encoded(encoder, texts, np.arange(2)) == [[0], [0]]


def test_a_stored_encoder_encodes_the_same():
    encoder = SequenceEncoder.fit(TEXTS, ALL, "words")
    described = encoder.description() | {"values": [*encoder.values]}
    other = SequenceEncoder.from_description(described, encoder.arrays(), "it")
    assert encoded(other) == encoded(encoder)
    for change in ({"width": 0}, {"values": ["a", "a"]}, {"unit": "lines"}):
        with pytest.raises(ValueError, match="it"):
            SequenceEncoder.from_description(described | change, {}, "it")
