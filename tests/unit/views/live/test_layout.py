from hogbatch.views.live.capabilities import Size
from hogbatch.views.live.layout import Wanted, layout


def test_a_table_has_a_row_below_its_heading():
    few = Wanted(progress=1, figures=False, curves=False, workers=1, events=0)
    assert [layout(Size(40, height), few).workers for height in (4, 5, 6)] == [0, 0, 2]
