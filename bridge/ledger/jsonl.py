"""A ledger as a file: JSON lines, one record a line, the schema's number and what the file is about on the first.

A file whose name ends in .gz is compressed.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import tempfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from bridge.errors import LedgerFormatError
from bridge.ledger.event import DeadEnd, Event
from bridge.ledger.record import End, Measure, PeerAnswer, Placement, Record, Trial, Way

FORMAT = "bridge-ledger"
SCHEMA = 3


@dataclass(frozen=True)
class LedgerFile:
    """What a file held. about: free words on the run (its command, its machine, its versions)."""

    about: Mapping[str, str]
    records: tuple[Record, ...]
    schema: int = SCHEMA

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(record for record in self.records if isinstance(record, Event))

    @property
    def placements(self) -> tuple[Placement, ...]:
        return tuple(record for record in self.records if isinstance(record, Placement))

    @property
    def peers(self) -> tuple[PeerAnswer, ...]:
        return tuple(record for record in self.records if isinstance(record, PeerAnswer))

    @property
    def measures(self) -> tuple[Measure, ...]:
        return tuple(record for record in self.records if isinstance(record, Measure))

    @property
    def trials(self) -> tuple[Trial, ...]:
        return tuple(record for record in self.records if isinstance(record, Trial))


def write(path: str | Path, records: Iterable[Record], about: Mapping[str, str] | None = None) -> None:
    """Write a file at once: whoever reads `path` sees the old file or the whole new one, never half of it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, unfinished = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        text = _header(about or {}) + "".join(_line(record) for record in records)
        with os.fdopen(descriptor, "wb") as file:
            file.write(_packed(path, text))
        Path(unfinished).chmod(0o644)
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise


def append(path: str | Path, records: Iterable[Record]) -> None:
    """Add records to a file of ours, or begin one. Raises LedgerFormatError rather than add to anything else.

    A file of an older schema is written anew, so that its first line is true of what is added.
    """
    path = Path(path)
    if not path.exists():
        write(path, records)
        return
    held = read(path)
    if held.schema < SCHEMA:
        write(path, [*held.records, *records], held.about)
        return
    with path.open("ab") as file:
        file.write(_packed(path, "".join(_line(record) for record in records)))


def read(path: str | Path) -> LedgerFile:
    """Read a file. Raises LedgerFormatError with file and line if it is cut off, not ours, damaged or too new."""
    try:
        data = Path(path).read_bytes()
        text = (gzip.decompress(data) if Path(path).suffix == ".gz" else data).decode("utf-8")
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise LedgerFormatError(f"{path}: not a ledger: {error}; give a .jsonl file that the bridge wrote") from error
    *lines, rest = text.split("\n")
    if rest:
        lines.append(rest)
    if not lines:
        raise LedgerFormatError(f"{path}:1: the file is empty; give a .jsonl file that the bridge wrote")
    about, schema = _read_header(lines[0], f"{path}:1")
    if rest:
        raise LedgerFormatError(
            f"{path}:{len(lines)}: the file is cut off within this line; remove the line to read what stands before it"
        )
    records = tuple(_read_record(line, f"{path}:{number}") for number, line in enumerate(lines[1:], start=2))
    return LedgerFile(about, records, schema)


def _packed(path: Path, text: str) -> bytes:
    """Text as it stands in the file. Compressed pieces that follow one another are one compressed file."""
    data = text.encode("utf-8")
    return gzip.compress(data, mtime=0) if path.suffix == ".gz" else data


def _header(about: Mapping[str, str]) -> str:
    return json.dumps({"format": FORMAT, "schema": SCHEMA, "about": dict(about)}) + "\n"


def _line(record: Record) -> str:
    """One record as a line. What equals its default is left out."""
    content = {field.name: getattr(record, field.name) for field in fields(record)}
    content = {f.name: content[f.name] for f in fields(record) if content[f.name] != f.default}
    return json.dumps({"record": type(record).__name__.lower(), **_finite(content)}, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """JSON has no word for NaN and infinity: they are written as the strings that `float` reads back."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return [_finite(item) for item in value]
    return value


def _read_header(line: str, place: str) -> tuple[Mapping[str, str], int]:
    header = _object(line, place)
    schema, about = header.get("schema"), header.get("about", {})
    if header.get("format") != FORMAT or type(schema) is not int or schema < 1 or not isinstance(about, dict):
        raise LedgerFormatError(f"{place}: not a ledger of the bridge; give a .jsonl file that the bridge wrote")
    if schema > SCHEMA:
        raise LedgerFormatError(
            f"{place}: the file has schema {schema} and this bridge reads {SCHEMA}; update the bridge"
        )
    return about, schema


def _read_record(line: str, place: str) -> Record:
    content = _object(line, place)
    kind = content.pop("record", None)
    if kind not in _KINDS:
        raise LedgerFormatError(f"{place}: no record is of the kind {kind!r}; there are {', '.join(_KINDS)}")
    cls, readers = _KINDS[kind]
    try:
        return cls(**{name: readers[name](value) for name, value in content.items()})
    except (KeyError, TypeError, ValueError) as error:
        raise LedgerFormatError(f"{place}: a damaged {kind}: {type(error).__name__}: {error}") from error


def _object(line: str, place: str) -> dict[str, Any]:
    try:
        content = json.loads(line)
    except ValueError as error:
        raise LedgerFormatError(f"{place}: not a ledger, or damaged: {error}") from error
    if not isinstance(content, dict):
        raise LedgerFormatError(f"{place}: not a ledger, or damaged: a line holds {type(content).__name__}, no object")
    return content


def _exactly(cls: type) -> Callable[[Any], Any]:
    def reader(value: Any) -> Any:
        if type(value) is not cls:
            raise TypeError(f"{value!r} is not of type {cls.__name__}")
        return value

    return reader


def _tuple_of(reader: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    return lambda values: tuple(reader(value) for value in _exactly(list)(values))


def _size(value: Any) -> int | str:
    return value if isinstance(value, str) else _exactly(int)(value)


_READERS: dict[str, Callable[[Any], Any]] = {
    "str": _exactly(str),
    "int": _exactly(int),
    "float": float,
    "bool": _exactly(bool),
    "int | None": _exactly(int),
    "float | None": float,
    "DeadEnd": DeadEnd,
    "Way": Way,
    "End": End,
    "tuple[str, ...]": _tuple_of(_exactly(str)),
    "tuple[float, ...]": _tuple_of(float),
    "tuple[tuple[int | str, ...], ...]": _tuple_of(_tuple_of(_size)),
}
"""How a field is read back, by its annotation."""

_KINDS: dict[str, tuple[type, dict[str, Callable[[Any], Any]]]] = {
    cls.__name__.lower(): (cls, {field.name: _READERS[str(field.type)] for field in fields(cls)})
    for cls in (Event, Placement, Measure, PeerAnswer, Trial)
}
