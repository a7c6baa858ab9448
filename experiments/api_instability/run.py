"""How often the names that the bridge stands on change, and which change would have broken it.

    python -m experiments.api_instability.run         from the kept results: the tables of README.md, and changes.png

`probe.py` reads wheels, `tvm.py` tries releases of TVM, `suite.py` runs the tests under another torch.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from bridge.touched import TORCH, numbers
from experiments.api_instability import suite, tvm
from experiments.api_instability.probe import ABSENT, Reading, kept, touched
from experiments.page import between

HERE = Path(__file__).parent
README = HERE / "README.md"
FIGURE = HERE / "results" / "changes.png"
BEGIN, END = "<!-- made by: python -m experiments.api_instability.run -->", "<!-- end of what is made -->"


def tables() -> str:
    """What the results say, in Markdown."""
    torch, of_tvm = kept("torch"), kept("tvm")
    parts = [
        "### torch, by release\n\n" + "\n".join(torch_by_release(torch)),
        "### The names that changed\n\n" + "\n".join(changed_names(torch)),
        "### Other ways to a joint graph\n\n" + "\n".join(other_ways(torch)),
        "### TVM, by release\n\n" + "\n".join(tvm_by_release(of_tvm)),
        "### TVM and tvm-ffi, run\n\n" + "\n".join(tvm_runs()),
        "### The tests, by torch\n\n" + "\n".join(suites()),
    ]
    return "\n\n".join(parts)


def torch_by_release(readings: Sequence[Reading]) -> Iterator[str]:
    """Changes from the release before, and calls that would not be taken, without the adapters and with them."""
    needed = {one.name for one in TORCH if not one.without}
    yield "| torch | names | changed or new | gone | training breaks without the adapters | with them |"
    yield "|---|---|---|---|---|---|"
    ours = touched(readings)
    before: dict[str, str] = {}
    for release in releases(ours):
        here = {reading.name: reading for reading in ours if reading.release == release}
        texts = {name: reading.text for name, reading in here.items()}
        both = [name for name in before if name in texts]
        changed = [name for name in both if texts[name] not in (before[name], ABSENT)]
        gone = [name for name in both if texts[name] == ABSENT != before[name]]
        without = [name for name in needed if name in here and here[name].refused]
        adapted = [name for name in needed if name in here and here[name].adapted]
        present = sum(text != ABSENT for text in texts.values())
        counts = [len(changed) if before else "", len(gone) if before else "", _names(without), _names(adapted)]
        unread = len(TORCH) - len(here)
        names = f"{present} of {len(here)}" + (f", {unread} not looked for" if unread else "")
        yield f"| {release} | {names} | {' | '.join(map(str, counts))} |"
        before = texts


def changed_names(readings: Sequence[Reading]) -> Iterator[str]:
    """Each of our names that is not the same in every release, by letters: the same letter is the same text."""
    yield from _letters(touched(readings), only_changed=True)


def other_ways(readings: Sequence[Reading]) -> Iterator[str]:
    """The names that other ways to a joint graph stand on."""
    yield from _letters([reading for reading in readings if reading.way != "ours"], only_changed=False)


def tvm_by_release(readings: Sequence[Reading]) -> Iterator[str]:
    """Of the names that the backend uses today, how many a release has, and as they are called."""
    yield "| apache-tvm | names | are there | as in the newest | cannot be used as they are used today |"
    yield "|---|---|---|---|---|"
    newest = {reading.name: reading.text for reading in readings if reading.release == releases(readings)[-1]}
    for release in releases(readings):
        here = [reading for reading in readings if reading.release == release]
        same = sum(reading.text == newest.get(reading.name) for reading in here)
        refused = [reading.name for reading in here if reading.refused]
        there = sum(reading.text != ABSENT for reading in here)
        yield f"| {release} | {len(here)} | {there} | {same} | {_names(refused)} |"


def tvm_runs() -> Iterator[str]:
    """What each pair of TVM and tvm-ffi does."""
    runs = [tvm.Run(**json.loads(line)) for line in tvm.RESULTS.read_text(encoding="utf-8").splitlines()]
    steps = list(dict.fromkeys(run.step for run in runs))
    yield f"| apache-tvm | tvm-ffi | {' | '.join(steps)} |"
    yield "|---|---" + "|---" * len(steps) + "|"
    for pair in dict.fromkeys((run.tvm, run.ffi) for run in runs):
        outcomes = {run.step: run.outcome for run in runs if (run.tvm, run.ffi) == pair}
        yield f"| {' | '.join(pair)} | {' | '.join(outcomes.get(step, '') for step in steps)} |"


def suites() -> Iterator[str]:
    """How the tests ended under each torch."""
    yield "| torch | pieces | passed | skipped | failed |"
    yield "|---|---|---|---|---|"
    pieces = suite.kept()
    for release in sorted({piece.torch for piece in pieces}, key=lambda text: numbers(text.split("+")[0])):
        here = [piece for piece in pieces if piece.torch == release]
        failed = [name for piece in here for name in piece.failed]
        passed, skipped = sum(piece.passed for piece in here), sum(piece.skipped for piece in here)
        yield f"| {release} | {len(here)} | {passed} | {skipped} | {_names(failed)} |"


def releases(readings: Sequence[Reading]) -> list[str]:
    """The releases in order."""
    return list(dict.fromkeys(reading.release for reading in readings))


def _letters(readings: Sequence[Reading], only_changed: bool) -> Iterator[str]:
    order = releases(readings)
    yield f"| name | {' | '.join(order)} |"
    yield "|---" * (len(order) + 1) + "|"
    for name in dict.fromkeys(reading.name for reading in readings):
        texts = {reading.release: reading.text for reading in readings if reading.name == name}
        distinct = list(dict.fromkeys(text for text in texts.values() if text != ABSENT))
        if len(distinct) > 1 or ABSENT in texts.values() or not only_changed:
            yield f"| `{name}` | {' | '.join(_letter(texts.get(release), distinct) for release in order)} |"


def _letter(text: str | None, distinct: Sequence[str]) -> str:
    """Which of the distinct texts it is; nothing where the name was not looked for."""
    if text is None:
        return ""
    return "–" if text == ABSENT else chr(ord("A") + distinct.index(text))


def _names(names: Sequence[str]) -> str:
    if not names:
        return "none"
    shown = ", ".join(f"`{name.split('.', 1)[-1]}`" for name in sorted(names)[:3])
    return f"{len(names)}: {shown}" + (" …" if len(names) > 3 else "")


def figure(path: Path) -> None:
    """Changes from release to release, of our names and of those that other ways stand on, and TVM's beside them."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    made, axes = pyplot.subplots(1, 2, figsize=(10, 3.6), width_ratios=[3, 2])
    torch, of_tvm = kept("torch"), kept("tvm")
    ours = steps(touched(torch))
    others = steps([r for r in torch if r.way != "ours"])
    for offset, (label, shares) in zip((-0.2, 0.2), (("names of the bridge", ours), ("other ways", others))):
        axes[0].bar([n + offset for n in range(len(shares))], list(shares.values()), width=0.4, label=label)
    axes[0].set_xticks(range(len(ours)), list(ours))
    axes[0].set_title("torch: names that changed since the release before")
    axes[0].legend()
    shares = steps(of_tvm)
    axes[1].bar(range(len(shares)), list(shares.values()), width=0.4)
    axes[1].set_xticks(range(len(shares)), list(shares))
    axes[1].set_title("TVM, likewise")
    for axis in axes:
        axis.set_ylabel("% of the names")
        axis.set_ylim(0, 100)
    made.tight_layout()
    made.savefig(path, dpi=120)


def steps(readings: Sequence[Reading]) -> dict[str, float]:
    """By release, the percentage of names read in both whose text is another than in the release before."""
    texts = {r: {one.name: one.text for one in readings if one.release == r} for r in releases(readings)}
    changes = {
        after: Counter(texts[before][name] != text for name, text in texts[after].items() if name in texts[before])
        for before, after in pairwise(texts)
    }
    return {release: 100 * count[True] / count.total() for release, count in changes.items()}


def main() -> None:
    between(README, BEGIN, END, tables())
    figure(FIGURE)
    print(tables())


if __name__ == "__main__":
    main()
