"""Sizes as Python text and back. A size that is the smaller or the larger of others is known by its text."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from bridge.backends.tvm.index import Data, Index, Quotient, Remainder, Size

BOUNDS: Mapping[str, Callable[[int, int], int]] = {"min": min, "max": max}


def index_of(text: str) -> Index:
    """A size from its Python text."""
    names: dict[str, Any] = {name: Index.of(Size(name)) for name in compile(text, "<size>", "eval").co_names}
    return Index.of(eval(text, {"__builtins__": {}}, {**names, "min": _smallest, "max": _largest}))


def text_of(index: Index) -> str:
    """A size as Python text. Raises ValueError for one that data decides."""
    terms = []
    for monomial, factor in index.terms.items():
        parts = [str(factor)] if factor != 1 or not monomial else []
        terms.append("*".join([*parts, *(_text_of_atom(atom) for atom in monomial)]))
    return " + ".join(terms) or "0"


def told(name: str, one: Index, other: Index) -> Index | None:
    """A size that is known by its text alone: "min", "max", "//" or "%" of two; None where one of them is no size."""
    atoms = [*one.atoms(), *other.atoms()]
    if not all(isinstance(atom, Size | Quotient | Remainder) for atom in atoms):
        return None
    if name in BOUNDS and one.constant is not None and other.constant is not None:
        return Index.of(BOUNDS[name](one.constant, other.constant))
    texts = text_of(one), text_of(other)
    text = f"{name}({', '.join(sorted(texts))})" if name in BOUNDS else f"(({texts[0]}) {name} ({texts[1]}))"
    return Index.of(Size(text))


def _smallest(*sizes: int | Index) -> Index:
    return functools.reduce(functools.partial(_told, "min"), (Index.of(size) for size in sizes))


def _largest(*sizes: int | Index) -> Index:
    """torch's strides hold max(1, size), which differs from the size for an empty tensor alone, where none is used."""
    more_than_one = [Index.of(size) for size in sizes if size != 1]
    return functools.reduce(functools.partial(_told, "max"), more_than_one)


def _told(name: str, one: Index, other: Index) -> Index:
    found = told(name, one, other)
    assert found is not None, "names in the text of a size are sizes"
    return found


def _text_of_atom(atom: Any) -> str:
    if isinstance(atom, Size):
        return atom.name
    if isinstance(atom, Data):
        raise ValueError(f"{atom} is no size")
    sign = "//" if isinstance(atom, Quotient) else "%"
    return f"(({text_of(atom.value)}) {sign} ({text_of(atom.by)}))"
