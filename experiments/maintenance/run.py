"""What it takes to keep up: new ops, lines a row, and the upstream faults that are worked around.

    python -m experiments.maintenance.run             counts the rows; the tables of README.md, and a page
    python -m experiments.maintenance.run --try       first runs the script of each fault anew, with what is installed

`ops.py` reads which ops a release brought out of its wheel, `new_ops.py` calls them. `results/newest_torch.jsonl.gz` is
what `bridge coverage MODEL… --out FILE` wrote under the newest torch.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from bridge.ledger import Way
from bridge.ledger.jsonl import read
from bridge.touched import ATTRIBUTES, MOST_NAMES, TORCH
from experiments.maintenance.ops import kept as releases
from experiments.maintenance.outcomes import Outcome, kept
from experiments.maintenance.upstream import ROOT, UPSTREAM, Fault, tried
from experiments.page import between, page

HERE = Path(__file__).parent
README = HERE / "README.md"
PAGE = HERE / "results" / "maintenance.html"
NEWEST = HERE / "results" / "newest_torch.jsonl.gz"
CORPUS = HERE.parent / "coverage" / "results" / "corpus.jsonl.gz"
SEEN = HERE / "results" / "faults.jsonl"
SIZE = HERE / "results" / "size.json"
BEGIN, END = "<!-- made by: python -m experiments.maintenance.run -->", "<!-- end of what is made -->"

ROWS = ROOT / "backends" / "tvm" / "ops"
SINCE = "2.12"


@dataclass(frozen=True)
class Sighting:
    """How a fault's script ended, and with which version."""

    name: str
    version: str
    outcome: str
    said: str


@dataclass(frozen=True)
class Size:
    """Overloads that have a row, lines of all rows, and private names: of training, of tools, of attributes."""

    overloads: int
    lines: int
    names: int
    names_of_tools: int
    attributes: int


def tables() -> str:
    """What the results say, in Markdown."""
    parts = [
        "### New ops\n\n" + "\n".join(new_ops()),
        "### Real models under the newest torch\n\n" + newest(),
        "### What a release brings\n\n" + "\n".join(by_release()),
        "### Size\n\n" + "\n".join(size()),
        "### Upstream faults\n\n" + "\n".join(faults()),
    ]
    return "\n\n".join(parts)


def new_ops() -> Iterator[str]:
    """Each call of something new, and what its ops would run as."""
    outcomes = kept()
    possible = [one for one in outcomes if not one.error]
    reached = {op for one in possible for op in (*one.generated, *one.library, *one.fallback)}
    fallen = {op for one in possible for op in one.fallback}
    whole = {op for one in possible for op in one.fallback if _is_itself(op, one)}
    parts = reached - whole
    yield (
        f"Of {len(outcomes)} calls of what came since {SINCE}, {len(possible)} can be captured on a CPU, and "
        f"{sum(one.handled for one in possible)} of these need no new row. Their decompositions reach {len(parts)} "
        f"different ops, of which {len(parts - fallen)} ({100 * len(parts - fallen) / len(parts):.0f} %) are handled. "
        f"{len(whole)} further ops are kernels of torch's own without a decomposition and run in ATen; counted with "
        f"these, {100 * len(reached - fallen) / len(reached):.0f} % are handled.\n"
    )
    yield "| new in | call | ops that have a row | from a library | without a row |"
    yield "|---|---|---|---|---|"
    for one in outcomes:
        yield f"| {one.series} | `{one.name}` | {_cells(one)} |"


def _is_itself(op: str, one: Outcome) -> bool:
    """Whether an op is what was called, or its gradient."""
    return op.split(".")[1].startswith(one.name.split(".")[0].rstrip("_"))


def _cells(one: Outcome) -> str:
    if one.error:
        return f"cannot be captured: {one.error.replace('|', '/')} | | "
    if not (one.generated or one.library or one.fallback):
        return "nothing is left of it in a graph | | "
    return " | ".join(", ".join(f"`{op}`" for op in sorted(ops)) for ops in (one.generated, one.library, one.fallback))


def newest() -> str:
    """What a dry run of some models under the newest torch met, against the whole corpus under an older one."""
    held, older = read(NEWEST), read(CORPUS)
    known = {placement.op for placement in older.placements}
    reached = {placement.op for placement in held.placements}
    fallen = {placement.op for placement in held.placements if placement.way is Way.FALLBACK}
    models = dict.fromkeys(placement.model for placement in held.placements)
    return (
        f"A training step of {len(models)} models ({', '.join(models)}) reaches {len(reached)} ops, of which "
        f"{len(reached - known)} are not among the {len(known)} of the whole corpus under the torch before; "
        f"{len(fallen)} fall back."
    )


def by_release() -> Iterator[str]:
    """How many overloads came and went."""
    yield "| torch | overloads | new | gone |"
    yield "|---|---|---|---|"
    for release in releases():
        yield f"| {release.release} | {release.overloads} | {_some(release.new)} | {_some(release.gone)} |"


def size() -> Iterator[str]:
    """The table of conversions and what is private, as they were counted last."""
    held = Size(**json.loads(SIZE.read_text(encoding="utf-8")))
    yield "| what | how much |"
    yield "|---|---|"
    yield f"| overloads that have a row | {held.overloads} |"
    yield f"| lines in backends/tvm/ops | {held.lines}, or {held.lines / held.overloads:.1f} an overload |"
    yield f"| private names of torch that training stands on | {held.names} (at most {MOST_NAMES}) |"
    yield f"| further ones, for tools alone | {held.names_of_tools} |"
    yield f"| private attributes of its objects | {held.attributes} |"


def counted() -> Size:
    """What the sources hold now."""
    overloads, lines = 0, 0
    for path in sorted(ROWS.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        lines += len(text.splitlines())
        calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
        overloads += sum(len(call.args) for call in calls if ast.unparse(call.func).startswith("converts"))
    needed = sum(not touched.without for touched in TORCH)
    return Size(overloads, lines, needed, len(TORCH) - needed, len(ATTRIBUTES))


def faults() -> Iterator[str]:
    """The faults that are worked around."""
    seen = {one.name: one for one in sightings()}
    yield "| fault | whose | reported | with | seen | what can go when it is mended |"
    yield "|---|---|---|---|---|---|"
    for fault in UPSTREAM:
        one = seen.get(fault.name)
        tried_with, outcome = (one.version, one.outcome) if one is not None else ("", "not tried")
        script = f"[{fault.title.rstrip('.')}](faults/{fault.name}.py)"
        place = f"`{fault.line}` in `{fault.file}`"
        yield f"| {script} | {fault.package} | {_link(fault)} | {tried_with} | {outcome} | {place} |"


def sightings() -> list[Sighting]:
    """What is kept of the faults' scripts."""
    lines = SEEN.read_text(encoding="utf-8").splitlines() if SEEN.exists() else []
    return [Sighting(**json.loads(line)) for line in lines]


def look() -> None:
    """Run every script, and keep how it ended."""
    found = []
    for fault in UPSTREAM:
        seen = tried(fault)
        found.append(Sighting(fault.name, version(fault.package), seen.outcome, seen.said[:300]))
        print(f"{fault.name}: {seen.outcome}", flush=True)
    SEEN.write_text("".join(json.dumps(asdict(one)) + "\n" for one in found), encoding="utf-8")


def _link(fault: Fault) -> str:
    repository, hash_, number = fault.reference.partition("#")
    return f"[{fault.reference}](https://github.com/{repository}/issues/{number})" if hash_ else fault.reference


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:4])
    return f"{len(names)}: {shown}" + (" …" if len(names) > 4 else "") if names else "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--try", action="store_true", dest="anew", help="run the scripts of the faults anew")
    if parser.parse_args().anew:
        look()
    SIZE.write_text(json.dumps(asdict(counted())) + "\n", encoding="utf-8")
    between(README, BEGIN, END, tables())
    PAGE.write_text(page("Maintenance", tables()), encoding="utf-8")
    print(tables())
    print(f"\nwritten: {README}, {PAGE}")


if __name__ == "__main__":
    main()
