import pytest

from hogbatch.store.layout import arrange
from hogbatch.store.model import SharedModel
from hogbatch.store.segment import Segment


@pytest.mark.parametrize(("slots", "first", "second"), [(0, 0, 0), (1, 20, 0), (2, 20, 20)])
def test_there_are_as_many_slots_as_the_optimizer_has(slots, first, second):
    segment = Segment.create("shared", arrange(SharedModel.fields(20, slots)))
    model = SharedModel.of(segment)
    assert [len(a) for a in (model.params, model.first, model.second)] == [20, first, second]
    assert model.steps.shape == (1,)
    segment.close()


def test_it_is_a_view_of_the_segment():
    segment = Segment.create("shared", arrange(SharedModel.fields(20, 2)))
    model, again = SharedModel.of(segment), SharedModel.of(segment)
    for number, array in enumerate((model.params, model.first, model.second, model.steps)):
        array[:] = number
    assert [a[0] for a in (again.params, again.first, again.second, again.steps)] == [0, 1, 2, 3]
    segment.close()
