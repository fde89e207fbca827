from dataclasses import replace

import pytest

from hogbatch.views.live.capabilities import Size
from hogbatch.views.live.layout import Wanted, layout
from tests.unit.views.live.conftest import SIZES

ALL = Wanted(progress=3, figures=True, curves=True, workers=3, events=20)


@pytest.mark.parametrize("size", [*SIZES, (40, 4), (300, 100)])
@pytest.mark.parametrize("workers", [0, 1, 3, 100])
def test_a_layout_leaves_a_line_and_a_column_free(size, workers):
    chosen = layout(Size(*size), replace(ALL, workers=workers))
    assert chosen.width == size[0] - 1 and 0 < chosen.height < size[1]


def test_a_small_terminal_has_the_most_important_parts():
    chosen = layout(Size(40, 10), ALL)
    assert (chosen.header, chosen.progress, chosen.figures, chosen.plot) == (2, 2, 1, 0)
    assert (chosen.workers, chosen.events, chosen.gap) == (3, 1, 0)


def test_a_usual_terminal_has_curves_all_workers_and_some_events():
    chosen = layout(Size(80, 24), ALL)
    assert (chosen.progress, chosen.workers, chosen.gap) == (3, 4, 1)
    assert chosen.plot >= 5 and chosen.events >= 1


def test_a_large_terminal_has_everything():
    chosen = layout(Size(200, 60), ALL)
    assert (chosen.plot, chosen.workers, chosen.events) == (10, 4, 8)
    assert layout(Size(200, 60), replace(ALL, workers=30)).workers == 31


def test_a_table_has_a_row_below_its_heading():
    few = Wanted(progress=1, figures=False, curves=False, workers=1, events=0)
    assert [layout(Size(40, height), few).workers for height in (4, 5, 6)] == [0, 0, 2]


def test_parts_without_content_take_no_lines():
    chosen = layout(Size(80, 24), Wanted(0, False, False, 0, 0))
    assert chosen.height == chosen.header == 2
