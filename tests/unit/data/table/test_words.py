import numpy as np

from hogbatch.data.table import words
from hogbatch.data.table.columns import TextColumn
from hogbatch.data.table.words import hashes_of, terms


def found(*texts):
    """The buckets of each text with their counts."""
    column = TextColumn.of(texts)
    rows, start = [{} for _ in texts], 0
    for count, block in terms(column, np.arange(len(texts))):
        for row, bucket, number in zip(block.rows, block.buckets, block.counts, strict=True):
            rows[start + row][int(bucket)] = int(number)
        start += count
    assert start == len(texts)
    return rows


def test_words_and_pairs_are_counted_whatever_their_place_case_and_the_marks_between_them():
    one, two, three = found("big cat", "  big,cat!", "cat. Big")
    assert one == two and len(one) == 3  # two words and a pair
    assert len(one.keys() & three.keys()) == 2  # the words; the pair has another order
    assert sorted(found("a b a b a")[0].values()) == [2, 2, 2, 3]  # ab, ba, b, a
    assert found("", " ... ", "x") == [{}, {}, found("x")[0]]
    assert list(map(len, found("a", "b"))) == [1, 1]  # no pair of two rows
    assert found("Größe ÄRA") == found("größe ära")


def test_blocks_do_not_change_the_terms(monkeypatch):
    texts = [f"row {n} has {n % 7} words" for n in range(100)]
    whole = found(*texts)
    monkeypatch.setattr(words, "BLOCK_BYTES", 50)
    assert found(*texts) == whole


def test_hashes_of_values_depend_on_every_character(monkeypatch):
    values = ["", "a", "aa", "b", "ab", "ba", "a b", "A"]
    hashes = hashes_of(values)
    assert len(set(hashes.tolist())) == len(values)
    monkeypatch.setattr(words, "BLOCK_VALUES", 3)
    np.testing.assert_array_equal(hashes_of(values), hashes)
    assert len(hashes_of([])) == 0
