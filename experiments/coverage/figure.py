"""The corpus as a picture: a cell for each model, a row for each compiler, from the kept results.

    python -m experiments.coverage.figure          draws results/coverage.svg
    python -m experiments.coverage.figure --ask    asks peers that are installed here first, and keeps their answers

What a peer has is told by name, over the ops of the graphs that the bridge captured: more than it can run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from bridge.cli.peers import ask
from bridge.cli.processes import TIMED_OUT
from bridge.demo.timing import machine
from bridge.ledger import Placement, Way
from bridge.ledger.jsonl import LedgerFile, read, write
from experiments.coverage.summary import RIGHT, draws, lines

RESULTS = Path(__file__).parent / "results"
NO_LIBRARY = "bridge, no library"
OURS = {
    "bridge": RESULTS / "corpus.jsonl.gz",
    NO_LIBRARY: RESULTS / "corpus_generated.jsonl.gz",
}
PEERS = RESULTS / "peers.jsonl.gz"
SHOWN = {"tvm.relax.frontend.torch": "TVM's importer", "torch.onnx": "torch.onnx", "torch_mlir": "torch-mlir"}
"""The peers that are drawn, with the names that people know them by."""

FONT: dict[Any, Any] = {"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "coverage"}
GREY = "#7d8590"
"""Text that is read on white and on black."""


class State(Enum):
    """What is to be said of a model, the best first: its colour and its words."""

    WHOLE = "#2da44e", "every node runs, results as eager's"
    OUTSIDE = "#8bd3a0", "the same, beside calls that torch leaves out of graphs"
    BY_NAME = "#4493f8", "every op by name, nothing run"
    LACKING = "#d4a72c", "some nodes are lacking"
    WRONG = "#cf222e", "further from eager than rounding leads"
    UNENDED = "#8c959f", "not done in the time given"


@dataclass(frozen=True)
class Row:
    """A compiler and its models, the best first."""

    name: str
    states: tuple[State, ...]

    @property
    def label(self) -> str:
        whole = sum(state in (State.WHOLE, State.OUTSIDE, State.BY_NAME) for state in self.states)
        return f"{whole} of {len(self.states)}"


def ours(name: str, held: LedgerFile, library: bool = True) -> Row:
    """A run of the corpus. Nothing may have fallen back, and without the library nothing but what draws be called."""
    models = dict.fromkeys(record.model for record in held.records if record.model)
    states = []
    for line in lines(held.records, models):
        if line.verdict != RIGHT:
            states.append(State.UNENDED if line.verdict == TIMED_OUT else State.WRONG)
        elif line.ways[Way.FALLBACK] or (line.called and not library):
            states.append(State.LACKING)
        else:
            states.append(State.OUTSIDE if line.outside else State.WHOLE)
    return Row(name, _sorted(states))


def peer(name: str, has: Mapping[str, bool], captured: Sequence[Placement]) -> Row:
    """A peer over the ops that each model's graphs hold. What draws random numbers is no op to be lacking."""
    models: dict[str, set[str]] = {}
    for placement in captured:
        models.setdefault(placement.model, set())
        if not draws(placement.op):
            models[placement.model].add(placement.op)
    whole = [all(has.get(op, False) for op in ops) for ops in models.values()]
    return Row(name, _sorted([State.BY_NAME if one else State.LACKING for one in whole]))


def _sorted(states: Sequence[State]) -> tuple[State, ...]:
    return tuple(sorted(states, key=list(State).index))


def rows() -> list[Row]:
    """What the kept results say: our runs, then the peers that were asked."""
    found = [ours(name, read(file), name != NO_LIBRARY) for name, file in OURS.items() if file.exists()]
    if PEERS.exists():
        captured = [one for one in read(OURS["bridge"]).placements if one.way is not Way.UNCAPTURED]
        answers: dict[str, dict[str, bool]] = {}
        for answer in read(PEERS).peers:
            if answer.op:
                answers.setdefault(answer.peer, {})[answer.op] = answer.has
        found += [peer(SHOWN[name], has, captured) for name, has in answers.items() if name in SHOWN]
    return found


def keep_answers() -> None:
    """Ask the peers for every op of the kept run."""
    ops = {one.op for one in read(OURS["bridge"]).placements if one.way is not Way.UNCAPTURED}
    about = {"command": "python -m experiments.coverage.figure --ask", **machine()}
    write(PEERS, [answer for answer in ask(ops) if answer.peer in SHOWN], about)


def draw(found: Sequence[Row], path: Path) -> None:
    """A strip of cells for each row. The page behind is left to show through."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    with matplotlib.rc_context(FONT):
        figure = Figure(figsize=(8, 0.62 + 0.34 * len(found)), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots()
        for height, row in enumerate(found):
            strip(axes, height, row)
        axes.set_yticks(range(len(found)), [row.name for row in found], color=GREY)
        axes.set_ylim(len(found) - 0.5, -0.5)
        axes.set_xlim(-0.5, max(len(row.states) for row in found) + 9)
        axes.tick_params(length=0, labelbottom=False)
        axes.set_frame_on(False)
        shown = [state for state in State if any(state in row.states for row in found)]
        handles = [Patch(color=state.value[0], label=state.value[1]) for state in shown]
        figure.legend(
            handles=handles, loc="outside lower left", ncols=2, frameon=False, labelcolor=GREY, handlelength=0.9
        )
        figure.savefig(path, transparent=True, metadata={"Date": None})


def strip(axes: Any, height: int, row: Row) -> None:
    """One run of cells for each state, so that the picture is small, and lines between the cells."""
    for state in State:
        places = [place for place, one in enumerate(row.states) if one is state]
        axes.bar(places, 0.62, 0.8, height - 0.31, color=state.value[0])
    axes.text(len(row.states) + 0.5, height, row.label, va="center", color=GREY)


def main(
    ask: Annotated[bool, typer.Option("--ask", help="Ask the peers that are installed here first.")] = False,
) -> None:
    """Draw the picture of the corpus."""
    if ask:
        keep_answers()
    path = RESULTS / "coverage.svg"
    draw(rows(), path)
    print(f"written: {path}")


if __name__ == "__main__":
    typer.run(main)
