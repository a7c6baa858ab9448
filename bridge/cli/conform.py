"""`bridge conform`: whether an importer's overloads compute what torch's do, with inputs that bring trouble."""

from __future__ import annotations

import os
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from bridge.cli.app import app, complain, console

OPS = 'Overloads that the bridge has a row for: "aten.add.Tensor", or "add" for all of add. All if none is named.'
IMPORTER = (
    "Who converts: bridge, tvm (TVM's own importer), or module:function, from a graph and its inputs to a callable."
)


@app.command()
def conform(
    ops: Annotated[list[str] | None, typer.Argument(help=OPS)] = None,
    importer: Annotated[str, typer.Option(help=IMPORTER)] = "bridge",
    out: Annotated[Path | None, typer.Option(help="The file of results, conform.jsonl if not given.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Try also what the file has already.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Overloads at a time.")] = 1,
    limit: Annotated[float, typer.Option(help="Seconds that an overload may take.")] = 300.0,
    summary: Annotated[bool, typer.Option("--summary", help="Only print what the file says.")] = False,
) -> None:
    """Run calls of ATen overloads through an importer and compare them with eager.

    Torch's samples in every type, and variants: NaN, infinities, -0 and denormals, no elements, no dimensions, offset,
    strided and expanded tensors. What is found is added to the file at once, so that a run can be stopped and taken up.
    Exits with 1 if anything that the importer takes is wrong, raises or ends the process.
    """
    if find_spec("expecttest") is None:
        complain(
            "expecttest, which torch's samples need, is not installed; pip install 'torch-tvm-bridge[conformance]'"
        )
        raise typer.Exit(1)
    from bridge.conformance.importers import importer as find
    from bridge.conformance.kept import tried
    from bridge.conformance.run import chosen, sweep
    from bridge.conformance.summary import BAD, line, print_summary
    from bridge.conformance.trials import worst
    from bridge.demo.timing import machine
    from bridge.ledger.jsonl import read, write

    find(importer)
    wanted = chosen(ops or ())
    file = out or Path("conform.jsonl")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if not file.exists():
        write(file, [], {"command": shlex.join(["bridge", *sys.argv[1:]]), **machine()})
    if again:
        held = read(file)
        kept = [one for one in held.trials if one.importer != importer or one.op not in wanted]
        write(file, kept, held.about)
    left = [] if summary else [op for op in wanted if op not in tried(file, importer)]
    for number, (op, of_op) in enumerate(sweep(left, importer, file, jobs, limit), start=1):
        console.print(f"{number}/{len(left)} {op}: {line(of_op)}", markup=False, highlight=False, soft_wrap=True)
    found = {op: of_op for op, of_op in tried(file, importer).items() if op in wanted}
    print_summary(found, importer, console)
    if any(worst(of_op) in BAD for of_op in found.values()):
        raise typer.Exit(1)
