import numpy as np
import pytest

from hogbatch.store.layout import PAGE, arrange
from hogbatch.store.model import SharedModel
from hogbatch.store.segment import Segment


def test_updates_are_those_of_cpu_and_gpu_workers_together():
    segment = Segment.create("shared", arrange(SharedModel.fields(20, 2)))
    model = SharedModel.of(segment)
    assert model.updates == 0
    model.steps[0] += 2**40
    SharedModel.of(segment).merges[0] += 3
    assert model.updates == 2**40 + 3
    segment.close()


@pytest.mark.parametrize("slots", [0, 1, 2])
@pytest.mark.parametrize("parameters", [20, 3000])
def test_its_memory_is_all_of_its_pages_and_no_page_of_another_array(parameters, slots):
    before, after = {"before": ("u1", (5,))}, {"after": ("<i8", (3,))}
    model_fields = SharedModel.fields(parameters, slots)
    segment = Segment.create("shared", arrange(before, model_fields, after))
    model = SharedModel.of(segment)
    sizes = [len(array) for array in (model.params, model.first, model.second)]
    assert sizes == [parameters, *[parameters] * slots, *[0] * (2 - slots)]
    memory, others = model.memory, [segment.array("before"), segment.array("after")]
    assert memory.ctypes.data % PAGE == 0 and memory.nbytes % PAGE == 0
    memory[:] = 0xFF
    for array in (model.params, model.first, model.second, model.steps, model.merges):
        assert (array.view(np.uint8) == 0xFF).all()
    assert not any(array.any() for array in others)
    start, end = memory.ctypes.data, memory.ctypes.data + memory.nbytes
    assert all(
        array.ctypes.data // PAGE < start // PAGE or array.ctypes.data >= end for array in others
    )
    del model, memory, others, array
    segment.close()
