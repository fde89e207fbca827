import pytest

from hogbatch.store.layout import PAGE, Layout, arrange, stored_width, tensor_offsets


def test_each_array_starts_on_the_next_free_cache_line():
    layout = arrange({"a": ("<f4", (3,)), "b": ("<i8", (2, 8)), "c": ("<i4", (1,))})
    assert [field.offset for field in layout.fields] == [0, 64, 192]
    assert layout.size == PAGE


def test_a_layout_without_data_can_still_be_mapped():
    assert arrange({}) == Layout((), PAGE)


def test_the_size_is_a_whole_number_of_pages():
    assert arrange({"a": ("u1", (PAGE,))}).size == PAGE
    assert arrange({"a": ("u1", (PAGE + 1,))}).size == 2 * PAGE


def test_each_group_of_arrays_starts_on_a_new_page():
    layout = arrange(
        {"a": ("<f4", (3,)), "b": ("u1", (PAGE,))}, {"c": ("<i4", (1,))}, {}, {"d": ("u1", (1,))}
    )
    assert [field.offset for field in layout.fields] == [0, 64, 2 * PAGE, 3 * PAGE]
    assert layout.size == 4 * PAGE


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
