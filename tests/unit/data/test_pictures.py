"""Folders of pictures, with files that Pillow writes."""

import sys

import numpy as np
import pytest
from PIL import Image

from hogbatch.errors import UsageError
from tests.support.reading import read, read_error, read_for_model

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (4, 6), np.uint8)  # of 4 x 6 cells
COLOUR = RNG.integers(0, 256, (4, 6, 3), np.uint8)


@pytest.fixture
def put(tmp_path):
    """Write arrays of pictures under names in a folder, and return it."""

    def put(**pictures):
        for name, values in pictures.items():
            path = tmp_path / name.replace("__", "/").replace("_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(values).save(path)
        return tmp_path

    return put


def test_classes_are_folders_and_rows_are_in_the_order_of_paths(put):
    folder = put(dog__b_png=GREY, dog__a_PNG=255 - GREY, cat__old__c_bmp=GREY // 2)
    (folder / "cat" / "notes.txt").write_text("1,2\n")
    (folder / ".cache").mkdir()
    (folder / ".cache" / "d.png").write_bytes(b"hidden")
    raw = read(folder)
    assert (raw.shape, raw.label_names, raw.labels.tolist()) == (
        (4, 6, 1),
        ("cat", "dog"),
        [0, 1, 1],
    )
    expected = np.stack([GREY // 2, 255 - GREY, GREY]).reshape(3, -1)
    np.testing.assert_array_equal(raw.inputs.dense, expected.astype(np.float32), strict=True)
    assert raw.locate(1) == str(folder / "dog" / "a.PNG")


def test_grey_pictures_beside_coloured_ones_have_three_equal_channels(put):
    raw = read(put(a__a_png=GREY, b__a_png=COLOUR), threads=1)
    assert raw.shape == (4, 6, 3)
    rows = raw.inputs.dense.reshape(2, 4, 6, 3)
    np.testing.assert_array_equal(rows[0], np.repeat(GREY[..., None], 3, axis=2))
    np.testing.assert_array_equal(rows[1], COLOUR)


@pytest.mark.parametrize("shape", [(2, 3, 1), (2, 3, 3)])
def test_pictures_are_resized_to_a_stated_shape(put, shape):
    even = np.full((8, 8, 3), 50, np.uint8)
    raw = read(put(a__a_png=COLOUR, b__a_png=even), shape=shape)
    assert raw.shape == shape
    np.testing.assert_array_equal(raw.inputs.dense[1], 50)


def test_other_sizes_are_refused_without_a_stated_shape(put):
    folder = put(a__a_png=GREY, b__a_png=GREY[:3])
    assert read_error(folder) == (
        f"{folder}/b/a.png: expected a height and width of 4x6, as of {folder}/a/a.png; got 3x6: "
        "resize the pictures with --input-shape HEIGHTxWIDTHx1 (grey) or HEIGHTxWIDTHx3"
    )


@pytest.mark.parametrize(
    ("values", "cut", "reason"),
    [
        (COLOUR, slice(0), "cannot identify image file"),
        (COLOUR, slice(60), ""),
        (GREY.astype(np.uint16), slice(None), r"it has more than 8 bits per value \(mode I;16\)"),
    ],
)
def test_a_picture_that_cannot_be_read_is_named(put, values, cut, reason):
    folder = put(a__a_png=COLOUR, b__a_png=values)
    path = folder / "b" / "a.png"
    path.write_bytes(path.read_bytes()[cut])
    message = f"{path}: expected an intact picture of 8 bits per value; {reason}"
    with pytest.raises(UsageError, match=message):
        read(folder)


def test_pictures_in_no_folder_have_no_labels(put):
    folder = put(a_png=GREY, b_png=GREY)
    assert read(folder).labels is None
    assert read_for_model(folder, 24, labels=False).rows == 2
    raw = read(put(c__a_png=GREY))
    assert (raw.rows, raw.label_names) == (1, ("c",))
    assert raw.notes == ("left out: 2 rows without a label",)


def test_without_pillow_the_message_names_the_package(put, monkeypatch):
    folder = put(a__a_png=GREY)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UsageError, match=r"a folder of pictures needs the package Pillow, .*"):
        read(folder)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [({"weight": "w"}, "--sample-weight names a column"), ({"group": "g"}, "--group and --time")],
)
def test_options_for_columns_are_refused(put, options, complaint):
    assert complaint in read_error(put(a__a_png=GREY), **options)
