"""Tables as Parquet, Arrow and Feather files, and folders of them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from hogbatch.data.columns import TableForm
from hogbatch.data.pieces import CELL, in_memory
from hogbatch.data.signatures import PARQUET
from hogbatch.data.source import Source, files_in
from hogbatch.data.table.arrow.columns import convert, indexes_in
from hogbatch.data.table.columns import Column, Kind
from hogbatch.errors import DataError
from hogbatch.machine.printable import printable, quoted


def form_of_file(path: Path, source: str) -> TableForm:
    """The columns of a Parquet, Arrow or Feather file, or a folder of them.

    Columns that follow from the names of the folders of files come first.
    """
    with _intact(source):
        if path.is_dir():
            schema = (whole := _dataset(path)).schema
            first, *rest = whole.get_fragments()
            own = first.physical_schema.names
            if other := next((e for e in rest if {*e.physical_schema.names} != {*own}), None):
                raise DataError(f"{other.path}: expected the columns of {first.path}")
            names = tuple(sorted(schema.names, key=lambda name: name in own))
        else:
            opened = pyarrow.parquet.ParquetFile if _is_parquet(path) else pyarrow.ipc.open_file
            schema = getattr(file := opened(path), "schema_arrow", None) or file.schema
            names = tuple(schema.names)
    if len(set(names)) < len(names):
        twice = next(name for n, name in enumerate(names) if name in names[:n])
        raise DataError(f"{source}: expected distinct names; got two columns {quoted(twice)}")
    return TableForm(source, names, True, indexes_in(schema))


def read_columnar(path: Path, source: str, kinds: Mapping[str, Kind | None]) -> dict[str, Column]:
    """Read the columns in `kinds` of a Parquet, Arrow or Feather file, or a folder of them.

    DataError if a file is damaged.
    """
    texts = {name for name, kind in kinds.items() if kind == "text"}
    with _intact(source):
        if path.is_dir():
            table = _dataset(path).to_table(columns=list(kinds))
        elif not _is_parquet(path):
            table = pyarrow.ipc.open_file(path).read_all().select(list(kinds))
        else:  # one column at a time needs the least memory
            file, found = pyarrow.parquet.ParquetFile(path), dict[str, Column]()
            for name in kinds:
                found |= convert(file.read([name]), {name: name}, texts, source)
            return found
    return convert(table, {name: name for name in kinds}, texts, source)


def rows_and_columns(path: Path, source: str) -> tuple[int, int]:
    """The numbers of rows and columns of a Parquet, Arrow or Feather file, or a folder of them."""
    with _intact(source):
        data = _dataset(path)
        return data.count_rows(), len(data.schema)


def columnar_pieces(source: Source, piece_bytes: int) -> Iterator[Source]:
    """Yield the rows in pieces of up to `piece_bytes` of numbers, as Arrow files in memory."""
    import pyarrow.dataset as of_files  # here: it imports pandas

    with _intact(str(source)):
        data = _dataset(source.path)
        most = max(1, piece_bytes // (CELL * len(data.schema)))
        settings = dict[str, Any](batch_size=most, batch_readahead=1, fragment_readahead=1)
        if _is_parquet(_first_file(source.path)):  # not a whole group of rows, which may be large
            buffered = {"use_buffered_stream": True, "pre_buffer": False}
            settings["fragment_scan_options"] = of_files.ParquetFragmentScanOptions(**buffered)
        for batch in data.to_batches(**settings):
            file = pa.BufferOutputStream()
            with pyarrow.ipc.new_file(file, batch.schema) as writer:
                writer.write_batch(batch)
            yield in_memory(source, [file.getvalue()])


@contextmanager
def _intact(source: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = printable(str(error).splitlines()[0], 200)
        raise DataError(
            f"{source}: not an intact Parquet, Arrow or Feather file: {reason}"
        ) from None


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(PARQUET)) == PARQUET


def _first_file(path: Path) -> Path:
    return files_in(path)[0] if path.is_dir() else path


def _dataset(path: Path) -> Any:
    """A file, or those of a folder; the format follows from the first bytes of the first one."""
    import pyarrow.dataset  # here: it imports pandas, which takes longer than reading most files

    form = "parquet" if _is_parquet(_first_file(path)) else "feather"
    return pyarrow.dataset.dataset(path, format=form, partitioning="hive")
