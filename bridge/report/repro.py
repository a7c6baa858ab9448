"""A program of a few lines that shows one fallback: tensors of the same sizes and types, and the call."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from bridge.ledger import Event

_FLOATING = ("float64", "float16", "bfloat16", "complex64", "complex128")
_WHOLE = ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64")

_PROGRAM = """\
{why}
import torch

import bridge

torch.manual_seed(0)
{tensors}

def call({names}):
    return {call}


compiled = bridge.compile(call, {options})
compiled({names})
for event in bridge.inspect(compiled).ledger:
    print(event.dead_end, event.kind, event.op, event.detail, sep=": ")
"""


def repro(event: Event) -> str | None:
    """The program, or None where the event holds no call of ATen or no tensors that can be made.

    Indices are zeros, masks are ones and all other values random. Matrix products too are asked of TVM.
    """
    sizes = event.sizes or event.shapes
    if not event.call or len(sizes) != len(event.dtypes):
        return None
    tensors = [_tensor(shape, dtype) for shape, dtype in zip(sizes, event.dtypes)]
    if None in tensors:
        return None
    options = ["library=False"]
    if event.sizes:
        options.append("dynamic=True")
    if event.kind == "denied":
        options.append(f'options={{"denied": ("{event.op}",)}}')
    lines = [f"x{position} = {tensor}" for position, tensor in enumerate(tensors)]
    return _PROGRAM.format(
        why="\n".join(f"# {line}" for line in _why(event)),
        tensors="".join(f"{line}\n" for line in lines),
        names=", ".join(f"x{position}" for position in range(len(tensors))),
        call=event.call,
        options=", ".join(options),
    )


def write_repros(events: Iterable[Event], folder: Path) -> list[Path]:
    """A file for each reason for which an op fell back. Gives the files that were written."""
    folder.mkdir(parents=True, exist_ok=True)
    programs: dict[tuple[str, str], str] = {}
    for event in events:
        program = repro(event)
        if program is not None:
            programs.setdefault((event.op, event.detail), program)
    written = []
    for number, ((op, _), program) in enumerate(programs.items(), start=1):
        path = folder / f"{number:03}_{re.sub(r'[^A-Za-z0-9]+', '_', op)}.py"
        path.write_text(program, encoding="utf-8")
        written.append(path)
    return written


def _why(event: Event) -> list[str]:
    told = [f"{event.op} does not run in TVM: {event.detail}"]
    if event.source:
        told.append(f"Asked for by {event.source}")
    if not event.op.startswith("aten."):
        told.append(f"Import the library that defines {event.op} first.")
    return [" ".join(line.split()) for line in told]


def _tensor(shape: tuple[int | str, ...], dtype: str) -> str | None:
    """Python that makes a tensor; None for a size that has no number and a type of which there are no random values."""
    if any(isinstance(size, str) for size in shape):
        return None
    size = f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
    if dtype == "float32":
        return f"torch.randn({size})"
    if dtype in _FLOATING:
        return f"torch.randn({size}, dtype=torch.{dtype})"
    if dtype.startswith("float8"):
        return f"torch.randn({size}).to(torch.{dtype})"
    if dtype in _WHOLE:
        return f"torch.zeros({size}, dtype=torch.{dtype})"
    return f"torch.ones({size}, dtype=torch.bool)" if dtype == "bool" else None
