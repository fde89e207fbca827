import pytest

from hogbatch.store.layout import arrange
from hogbatch.store.model import SharedModel
from hogbatch.store.segment import Segment


@pytest.fixture
def segment():
    """A segment for a model of 20 parameters and an optimizer with two slots."""
    segment = Segment.create("shared", arrange(SharedModel.fields(20, 2)))
    yield segment
    segment.close()


@pytest.mark.parametrize(("slots", "first", "second"), [(0, 0, 0), (1, 20, 0), (2, 20, 20)])
def test_there_are_as_many_slots_as_the_optimizer_has(slots, first, second):
    segment = Segment.create("shared", arrange(SharedModel.fields(20, slots)))
    model = SharedModel.of(segment)
    assert [len(a) for a in (model.params, model.first, model.second)] == [20, first, second]
    assert model.steps.shape == model.merges.shape == (1,)
    segment.close()


def test_it_is_a_view_of_the_segment(segment):
    model, again = SharedModel.of(segment), SharedModel.of(segment)
    names = ["params", "first", "second", "steps", "merges"]
    for number, name in enumerate(names):
        getattr(model, name)[:] = number
    assert [getattr(again, name)[0] for name in names] == [0, 1, 2, 3, 4]


def test_updates_are_those_of_cpu_and_gpu_workers_together(segment):
    model = SharedModel.of(segment)
    assert model.updates == 0
    model.steps[0] += 2**40
    SharedModel.of(segment).merges[0] += 3
    assert model.updates == 2**40 + 3


def test_its_memory_is_one_run_of_bytes(segment):
    model = SharedModel.of(segment)
    model.params[0], model.second[-1] = 1, 2
    floats = model.memory.view("f4")
    assert floats[0] == 1 and floats[-1] == 2
    model.memory[:] = 0
    assert not model.params.any() and not model.second.any()


def test_the_memory_of_a_model_without_slots_is_its_parameters():
    segment = Segment.create("shared", arrange(SharedModel.fields(20, 0)))
    model = SharedModel.of(segment)
    assert model.memory.nbytes == model.params.nbytes
    del model
    segment.close()
