"""Prepared files whose contents are changed at random, with valid checksums.

`originals` writes one of each kind: entries of the data cache, model files, and runs with two
checkpoints. `mutate` writes a changed copy, and `tests.support.prepared_user` uses it.
"""

import json
import os
import shutil
import zlib
from pathlib import Path
from random import Random

import numpy as np
from numpy.lib import format as npy

import hogbatch
from hogbatch.data.cache import DataCache
from hogbatch.data.raw import ReadOptions
from hogbatch.data.readers import read_as
from hogbatch.data.table.kinds import TableOptions
from hogbatch.model import tensors
from hogbatch.model.file import FORMAT
from tests.support.mutations import DEEP, DEEP_JSON, changed_array, changed_json

LONG_AGO = 1_000_000_000
ROWS = 60
SETTINGS = {"epochs": 2, "deterministic": True, "quiet": True, "data_cache": "off"}
TABLE = {"label": "y", "text": ("note",)}
KINDS = {  # a name of `DATA`, and the settings of training
    "cache of rows": ("rows.svm", {"hidden": ()}),
    "cache of lists": ("lists.xmc", {"hidden": (3,)}),
    "cache of columns": ("table.csv", {"hidden": (), **TABLE}),
    "dense model": ("rows.svm", {"hidden": (4,), "scale": "standard"}),
    "hashed model": ("lists.xmc", {"hidden": (8,), "output": "lsh"}),
    "multilabel model": ("lists.xmc", {"hidden": (3,)}),
    "table model": ("table.csv", {"hidden": (), **TABLE}),
    "real model": ("real.csv", {"hidden": (3,)}),
    "checkpoint": ("rows.svm", {"hidden": (4,), "quiet": False}),
}


def write_data(folder: Path):
    """Small data files of each format."""
    chance = np.random.default_rng(0)
    lines = {name: [] for name in ("rows.svm", "lists.xmc", "table.csv", "real.csv")}
    lines["lists.xmc"].append(f"{ROWS} 9 6")
    lines["table.csv"].append("size,flag,color,day,note,y")
    lines["real.csv"].append("a,b,y")
    for row in range(ROWS):
        columns = np.flatnonzero(chance.random(9) < 0.5)
        pairs = " ".join(f"{n + 1}:{chance.normal():.3f}" for n in columns)
        lines["rows.svm"].append(f"{row % 2} {pairs}")
        listed = ",".join(map(str, np.flatnonzero(chance.random(6) < 0.3)))
        lines["lists.xmc"].append(f"{listed} " + " ".join(f"{n}:1" for n in columns))
        size = "" if row % 7 == 0 else f"{chance.normal():.3f}"
        color = chance.choice(["red", "blue", "", "a rare one"], p=[0.4, 0.4, 0.15, 0.05])
        day = f"2013-0{row % 9 + 1}-15 0{row % 10}:30:00"
        note = chance.choice(["a very late arrival", "nothing to say", ""])
        flag = ("true", "false")[row % 3 > 0]
        lines["table.csv"].append(f"{size},{flag},{color},{day},{note},{('no', 'yes')[row % 2]}")
        lines["real.csv"].append(f"{chance.normal():.3f},{row % 5},{chance.normal():.3f}")
    for name, content in lines.items():
        (folder / name).write_text("\n".join(content) + "\n")


def dumps(tree) -> str:
    """JSON of a tree that may contain DEEP."""
    return json.dumps(tree).replace(json.dumps(DEEP), DEEP_JSON)


# Entries of the data cache ------------------------------------------------------------------------


def entry_of(cache: Path):
    """The only entry of a cache."""
    (entry,) = cache.glob("*.hogdata")
    return entry


def read_entry(path: Path):
    with path.open("rb") as file:
        count = len(npy.read_array(file))
        header, *arrays = [npy.read_array(file) for _ in range(count)]
    header = json.loads(header.tobytes())
    return header, dict(zip(header[1], arrays, strict=True))


def write_entry(path: Path, header, arrays, random: Random | None = None):
    """Write an entry; with `random`, an array may state another shape than it has."""
    stored = [np.frombuffer(dumps(header).encode(), np.uint8), *arrays.values()]
    stated = [(each.dtype, each.shape) for each in stored]
    if random is not None and random.random() < 0.1:
        at = random.randrange(len(stored))
        shapes = ((10**15,), (-1,), (2**62, 4), (0,), (), (1, 10**12), (10**9,))
        stated[at] = stated[at][0], random.choice(shapes)
    sums = [
        zlib.crc32(np.ascontiguousarray(each).tobytes(), zlib.crc32(f"{dtype} {shape}".encode()))
        for each, (dtype, shape) in zip(stored, stated, strict=True)
    ]
    with path.open("wb") as file:
        npy.write_array(file, np.array(sums, np.uint32))
        for each, (dtype, shape) in zip(stored, stated, strict=True):
            described = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
            npy.write_array_header_1_0(file, described)
            file.write(each.tobytes())


def mutate_entry(path: Path, random: Random):
    header, arrays = read_entry(path)
    for _ in range(changes(random)):
        if random.random() < 0.3:
            header[2] = changed_json(header[2], random)
        else:
            mutate_arrays(arrays, random)
    header[1] = [*arrays]
    if random.random() < 0.1:
        header = changed_json(header, random)
    write_entry(path, header, arrays, random)


def changes(random: Random) -> int:
    """How many changes are made in one file."""
    return random.choice((1, 1, 1, 2, 3))


def mutate_arrays(arrays, random: Random):
    """Change one array, if there is one; one of JSON is changed as such."""
    if not arrays:
        return
    name = random.choice([*arrays])
    match random.randrange(10):
        case 0:
            del arrays[name]
        case 1:
            arrays[name + "x"] = arrays.pop(name)
        case 2:
            arrays[name] = random.choice([*arrays.values()])
        case _:
            content = arrays[name]
            if content.dtype == np.uint8 and content[:1].tobytes() in (b"[", b"{"):
                text = dumps(changed_json(json.loads(content.tobytes()), random))
                text = text.encode(errors="surrogatepass")
                content = np.frombuffer(text, np.uint8)
                arrays[name] = content if random.random() < 0.9 else changed_array(content, random)
            else:
                arrays[name] = changed_array(content, random)


# Model files and checkpoints ----------------------------------------------------------------------


def read_tensors(path: Path):
    """The header of a safetensors file and its tensors, in file order."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header, arrays = json.loads(content[8:start]), {}
    dtypes = {stored: name for name, stored in tensors.DTYPES.items()}
    for name, each in header.items():
        if name != "__metadata__":
            begin, end = each["data_offsets"]
            cells = np.frombuffer(content[start + begin : start + end], dtypes[each["dtype"]])
            arrays[name] = cells.reshape(each["shape"])
    return header, arrays


def header_bytes(header) -> bytes:
    text = dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def storable(arrays):
    """The arrays that safetensors can hold, in file order."""
    known = {
        name: np.ascontiguousarray(each.astype(each.dtype.newbyteorder("<"))).reshape(each.shape)
        for name, each in arrays.items()
        if each.dtype.name in tensors.DTYPES
    }
    return tensors.in_file_order(known)


def mutate_model(path: Path, random: Random):
    header, arrays = read_tensors(path)
    described = json.loads(header["__metadata__"][FORMAT][8:])
    if random.random() < 0.5:
        for _ in range(changes(random)):
            described = changed_json(described, random)
    else:
        for _ in range(changes(random)):
            mutate_arrays(arrays, random)
        arrays = storable(arrays)
        described["crc32"] = {n: zlib.crc32(each.tobytes()) for n, each in arrays.items()}
    text = dumps(described)
    seal = f"{zlib.crc32(text.encode()):08x}"
    metadata = {FORMAT: seal + text}
    header = json.loads(tensors.header(arrays, metadata)[8:])
    if random.random() < 0.1:
        header = changed_json(header, random)
    path.write_bytes(header_bytes(header) + b"".join(each.tobytes() for each in arrays.values()))


def mutate_checkpoint(path: Path, random: Random):
    manifest = json.loads((path / "manifest.json").read_bytes())
    del manifest["crc32"]
    head, arrays = read_tensors(path / "tensors.safetensors")
    if random.random() < 0.4:
        for _ in range(changes(random)):
            mutate_arrays(arrays, random)
        arrays = storable(arrays)
        head = header_bytes(json.loads(tensors.header(arrays)[8:]))
        manifest["header"] = {"bytes": len(head), "crc32": zlib.crc32(head)}
        manifest["tensors"] = {
            name: {
                "dtype": each.dtype.name,
                "shape": each.shape,
                "crc32": zlib.crc32(each.tobytes()),
            }
            for name, each in arrays.items()
        }
        content = head + b"".join(each.tobytes() for each in arrays.values())
        (path / "tensors.safetensors").write_bytes(content)
    elif random.random() < 0.75:
        for _ in range(changes(random)):
            manifest["description"] = changed_json(manifest["description"], random)
    else:
        manifest = changed_json(manifest, random)
    rest = dumps(manifest).encode()[1:]
    rest = b" " + rest if isinstance(manifest, dict) else rest
    (path / "manifest.json").write_bytes(b'{"crc32": "%08x",%b' % (zlib.crc32(rest), rest))


# All kinds ----------------------------------------------------------------------------------------


def originals(kind: str, folder: Path):
    """Write the files of `kind` into a new folder."""
    name, settings = KINDS[kind]
    folder.mkdir()
    write_data(folder)
    data = folder / name
    if kind.startswith("cache"):
        columns = TableOptions(text=TABLE["text"]) if name == "table.csv" else TableOptions()
        label = (TABLE["label"],) if name == "table.csv" else ()
        options = ReadOptions(label=label, table=columns)
        os.utime(data, (LONG_AGO, LONG_AGO))
        read_as(data, options, DataCache(folder / "cache", min_parse_s=0.0))
        return
    run = hogbatch.train(data, run_dir=folder / "run", **SETTINGS | settings)
    if kind == "checkpoint":
        first = run.run_dir / "checkpoints" / "000001"
        shutil.copytree(first, first.with_name("000002"))


def mutate(kind: str, folder: Path, random: Random):
    """Change the prepared file in a copy of the folder of `originals`."""
    if kind.startswith("cache"):
        mutate_entry(entry_of(folder / "cache"), random)
    elif kind == "checkpoint":
        mutate_checkpoint(folder / "run" / "checkpoints" / "000002", random)
    else:
        mutate_model(folder / "run" / "model.safetensors", random)
