import pytest

from hogbatch.store.layout import PAGE, Layout, arrange, stored_width, tensor_offsets


def test_arrays_start_on_cache_lines_and_groups_of_them_on_pages():
    layout = arrange({"a": ("<f4", (3,)), "b": ("<i8", (2, 8)), "c": ("<i4", (1,))})
    assert [field.offset for field in layout.fields] == [0, 64, 192]
    assert layout.size == PAGE
    layout = arrange(
        {"a": ("<f4", (3,)), "b": ("u1", (PAGE,))}, {"c": ("<i4", (1,))}, {}, {"d": ("u1", (PAGE,))}
    )
    assert [field.offset for field in layout.fields] == [0, 64, 2 * PAGE, 3 * PAGE]
    assert layout.size == 4 * PAGE
    assert arrange({}) == Layout((), PAGE), "it can still be mapped"


@pytest.mark.parametrize(
    ("width", "stored"),
    [(1, 1), (2, 2), (3, 4), (5, 8), (8, 8), (9, 16), (16, 16), (17, 32), (300, 304), (512, 512)],
)
def test_stored_width(width, stored):
    assert stored_width(width) == stored


def test_a_width_below_one_is_refused():
    with pytest.raises(ValueError, match="got 0"):
        stored_width(0)


def test_tensors_start_every_sixteen_floats():
    assert tensor_offsets([(3, 16), (16,), (5,), (2, 2)]) == ((0, 48, 64, 80), 96)
