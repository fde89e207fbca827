"""Folders of pictures, read with Pillow: CLASS/*.png, CLASS/*.jpg and so on.

The labels are the names of the folders. A row has the shape (height, width, channels), with one
channel if all pictures are grey, else three. The rows are in the order of the paths.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.backbone import show_shape
from hogbatch.config.layers import Shape
from hogbatch.data.arrays import rows_of
from hogbatch.data.raw import RawSet, ReadOptions
from hogbatch.data.source import Source, files_in
from hogbatch.errors import DataError, needs_package
from hogbatch.machine.printable import printable

ENDINGS: Final = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
GREY: Final = ("1", "L", "LA")  # modes of Pillow


def pictures_in(folder: Path) -> list[Path]:
    """The pictures in a folder, in order; none if `folder` is a file."""
    return [each for each in files_in(folder) if each.suffix.lower() in ENDINGS]


def read(source: Source, options: ReadOptions) -> RawSet:
    """Read the pictures in a folder; they are resized to `options.shape` if it has 1 or 3 channels.

    DataError names a picture that cannot be read, or that would have to be resized otherwise.
    """
    files, pictures = pictures_in(source.path), list[NDArray[np.uint8]]()
    source.progress.begin(str(source), len(files))
    values = partial(_values, shape=options.shape if options.shape[2:] in ((1,), (3,)) else ())
    with ThreadPoolExecutor(options.threads or len(os.sched_getaffinity(0))) as pool:
        for file, picture in zip(files, pool.map(values, files), strict=True):
            pictures.append(picture)
            if (size := picture.shape[:2]) != (first := pictures[0].shape[:2]):
                raise DataError(
                    f"{printable(str(file))}: expected a height and width of {show_shape(first)}, "
                    f"as of {printable(str(files[0]))}; got {show_shape(size)}: resize the "
                    "pictures with --input-shape HEIGHTxWIDTHx1 (grey) or HEIGHTxWIDTHx3"
                )
            source.progress.add(1)
    shape = *pictures[0].shape[:2], max(each.shape[2] for each in pictures)
    arrays = {"X": np.stack([np.broadcast_to(each, shape) for each in pictures])}
    within = [file.relative_to(source.path).parts for file in files]
    classes = [parts[0] if len(parts) > 1 else None for parts in within]
    if any(classes):
        arrays["y"] = np.array(classes, object)
    raw = rows_of(arrays, source, options)
    return replace(raw, locator=lambda row: printable(str(files[row])))


def _values(file: Path, shape: Shape) -> NDArray[np.uint8]:
    """The values [H, W, C] of a picture, resized to `shape`, if it is given."""
    with needs_package("a folder of pictures", "Pillow", "pictures"):
        from PIL import Image  # here: an optional package
    try:
        with Image.open(file) as picture:
            if picture.mode.startswith(("I", "F")):
                raise ValueError(f"it has more than 8 bits per value (mode {picture.mode})")
            grey = shape[2] == 1 if shape else picture.mode in GREY
            converted = picture.convert("L" if grey else "RGB")
            if shape:
                converted = converted.resize((shape[1], shape[0]))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(
            f"{printable(str(file))}: expected an intact picture of 8 bits per value; {error}"
        ) from None
    return np.atleast_3d(np.asarray(converted))
