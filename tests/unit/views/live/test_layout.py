import pytest

from hogbatch.views.live.capabilities import Size
from hogbatch.views.live.layout import Wanted, layout


@pytest.mark.parametrize(
    ("size", "workers", "parts"),
    [  # progress, figures, plot, workers, events, gap; the heading of a table is a line of it
        ((40, 4), 100, (1, 0, 0, 0, 0, 1)),
        ((40, 5), 1, (1, 1, 0, 0, 0, 0)),
        ((40, 10), 3, (2, 1, 0, 3, 1, 0)),
        ((60, 20), 100, (3, 1, 5, 4, 1, 1)),
        ((80, 24), 3, (3, 1, 6, 4, 4, 1)),
        ((200, 60), 3, (3, 1, 10, 4, 8, 1)),
        ((300, 100), 30, (3, 1, 10, 31, 8, 1)),
    ],
)
def test_the_most_important_parts_come_first(size, workers, parts):
    chosen = layout(Size(*size), Wanted(3, True, True, workers, events=20))
    found = chosen.progress, chosen.figures, chosen.plot, chosen.workers, chosen.events, chosen.gap
    assert (chosen.header, found) == (2, parts)
    assert chosen.width == size[0] - 1 and chosen.height < size[1]


def test_parts_without_content_take_no_lines():
    chosen = layout(Size(80, 24), Wanted(0, False, False, 0, 0))
    assert chosen.height == chosen.header == 2


def test_a_table_has_a_row_below_its_heading():
    few = Wanted(progress=1, figures=False, curves=False, workers=1, events=0)
    assert [layout(Size(40, height), few).workers for height in (4, 5, 6)] == [0, 0, 2]
