import json

import numpy as np

from hogbatch.store.quarantine import NAME, QuarantinedRows


def test_rows_are_noted_by_their_numbers_in_the_order_found(tmp_path):
    quarantined = QuarantinedRows(tmp_path)
    quarantined.add(np.array([5, 3, 1, 0, 2, 4]), 7, 1, 3)
    quarantined.add(np.array([5, 4, 3, 2, 1, 0]), 8, 0, 1)
    assert quarantined.rows == [3, 1, 5]
    notes = [json.loads(line) for line in (tmp_path / NAME).read_text().splitlines()]
    assert [(n["epoch"], n["start"], n["stop"], n["rows"]) for n in notes] == [
        (7, 1, 3, [3, 1]),
        (8, 0, 1, [5]),
    ]


def test_a_directory_that_is_gone_loses_the_note_alone(tmp_path):
    quarantined = QuarantinedRows(tmp_path / "gone", [9])
    quarantined.add(np.arange(4), 0, 2, 4)
    assert quarantined.rows == [9, 2, 3]
