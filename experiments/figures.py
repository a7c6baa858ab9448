"""The README's table of numbers, made from the kept results.

python -m experiments.figures     writes the table into the README anew
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bridge.bench.summary import by_target, geometric_mean, ratio
from bridge.ledger import Placement, Way
from bridge.ledger.jsonl import read

EXPERIMENTS = Path(__file__).parent
README = EXPERIMENTS.parent / "README.md"
BEGIN, END = "<!-- numbers: python -m experiments.figures -->", "<!-- end of the numbers -->"


SOON = 20
"""Steps after which rounding has not yet grown."""


@dataclass(frozen=True)
class Line:
    """One line of the table: what was measured, what came out, and how to have it again."""

    what: str
    result: str
    file: Path
    command: str

    def __str__(self) -> str:
        place = self.file.relative_to(README.parent)
        return f"| {self.what} | {self.result} | [`{self.command}`]({place}) |"


def table() -> str:
    """The table in Markdown, of the results that are there."""
    lines = [line for file, make in SOURCES.items() if file.exists() for line in make(file)]
    return "\n".join(["| | | made by |", "|---|---|---|", *map(str, lines)])


def demo(file: Path) -> list[Line]:
    held = read(file)

    def values(name: str, target: str, model: str) -> tuple[float, ...]:
        return next(m.values for m in held.measures if (m.name, m.target, m.model) == (name, target, model))

    command, lines = "bridge demo", []
    accuracy = [values("test accuracy", target, "digits")[0] for target in ("bridge", "eager")]
    lines.append(("Handwritten digits, test accuracy", f"{accuracy[0]:.1f} % (eager {accuracy[1]:.1f} %)"))
    for model, title in (("digits", "Convolutional net"), ("text", "Small GPT-2")):
        curves = zip(values("loss", "bridge", model), values("loss", "eager", model), strict=True)
        differences = [abs(a - b) / b for a, b in curves]
        told = f"{max(differences[:SOON]):.1g} in {SOON} steps, {max(differences):.1g} in all {len(differences)}"
        lines.append((f"{title}, largest relative difference of a loss from eager", told))
        step = {target: median(values("step", target, model)) for target in ("eager", "inductor", "bridge")}
        first = {target: values("first call", target, model)[0] for target in ("inductor", "bridge")}
        told = f"{step['bridge'] / step['eager']:.2f} of eager, {step['bridge'] / step['inductor']:.2f} of Inductor"
        lines.append((f"{title}, time of a training step", told))
        lines.append((f"{title}, time of the first call", f"{first['bridge'] / first['inductor']:.2f} of Inductor"))
    return [Line(what, result, file, command) for what, result in lines]


def host_overhead(file: Path) -> list[Line]:
    held = read(file)
    step = {m.target: median(m.values) for m in held.measures if m.name == "step"}
    (call,) = (median(m.values) for m in held.measures if m.name != "step")
    share = (step["bridge"] - step["nothing"]) / (step["inductor"] - step["nothing"])
    command = "python -m experiments.host_overhead.run"
    return [
        Line("Host time of a kernel call on 3 tensors, allocation included", f"{call * 1e6:.1f} µs", file, command),
        Line("Host time of a small MLP's step, above a backend that does nothing", f"{share:.2f} of Inductor's", file,
             command),
    ]  # fmt: skip


def corpus(library: bool) -> Callable[[Path], list[Line]]:
    def make(file: Path) -> list[Line]:
        from experiments.coverage.summary import RIGHT, lines

        held = read(file)
        models = lines(held.records, dict.fromkeys(r.model for r in held.records if r.model))
        right = [model for model in models if model.verdict == RIGHT]
        near = sum(1 for model in right if model.rounded)
        nodes = {way: _nodes(held.placements, way) for way in Way}
        total = sum(nodes.values())
        share = ", ".join(f"{100 * nodes[way] / total:.2f} % {way.value}" for way in Way if way is not Way.UNCAPTURED)
        how = "" if library else ", matrix products, convolutions and attention generated too"
        command = "python -m experiments.coverage.run" + ("" if library else " --no-library")
        return [
            Line(
                f"Real models whose training step is right{how}",
                f"{len(right)} of {len(models)} ({near} of them as eager is where rounding is amplified)",
                file,
                command,
            ),
            Line(*(_without_fallback(right) if library else _all_generated(right)), file, command),
            Line(f"Nodes of their {total} captured ones{how}", share, file, command),
        ]

    return make


def _without_fallback(right: Sequence[Any]) -> tuple[str, str]:
    """right: lines of `experiments.coverage.summary`."""
    without = sum(1 for model in right if not model.ways[Way.FALLBACK])
    uncaptured = sum(1 for model in right if model.uncaptured)
    said = f"{without} ({uncaptured} models have parts that torch captures in no graph)"
    return "Of those, without any fallback", said


def _all_generated(right: Sequence[Any]) -> tuple[str, str]:
    generated = [model for model in right if model.generated]
    alone = sum(1 for model in generated if not model.outside)
    said = f"{len(generated)} (in {alone} an audit finds no computing call of ATen's anywhere)"
    return "Of those, with every node generated that draws no random numbers", said


def conformance(dtype: str, database: str = "OpInfo", symbolic: bool = False) -> Callable[[Path], list[Line]]:
    def make(file: Path) -> list[Line]:
        from experiments.conformance import summary

        held = read(file)
        ended = [verdict.verdict for verdict in summary.verdicts(held.records).values()]
        wrong = sum(verdict in (summary.WRONG, summary.RAISED, summary.CRASHED) for verdict in ended)
        without = sum(verdict in (summary.GENERATED, summary.WITH_LIBRARY, summary.NOTHING) for verdict in ended)
        captured = without + sum(verdict == summary.WITH_FALLBACK for verdict in ended)
        told = f"{wrong} wrong; {without} of {captured} captured ones without any fallback"
        more = "" if dtype == "float32" else f" --dtype {dtype} --samples 2"
        more += "" if database == "OpInfo" else " --modules"
        more += " --symbolic --samples 1" if symbolic else ""
        what = f"torch's own {database} samples in {dtype}{', sizes as symbols' if symbolic else ''}"
        command = f"python -m experiments.conformance.run{more}"
        return [Line(f"{what}, {len(ended)} entries, {_torch(held.about)}", told, file, command)]

    return make


def benchmark(file: Path) -> list[Line]:
    held, command = read(file), "python -m experiments.benchmark.run"
    lines = []
    measured = {
        "step": "Training step",
        "first step": "First step, compiled cold",
        "first step, warm": "First step, found in the cache",
        "peak memory": "Peak memory of a step",
    }
    for name, what in measured.items():
        found = [ratio(of, "inductor") for of in by_target(held.records, name).values()]
        ratios = [one[0] for one in found if one is not None]
        if ratios:
            told = f"{geometric_mean(ratios):.2f} of Inductor's ({min(ratios):.2f} to {max(ratios):.2f})"
            lines.append(Line(f"{what}, geometric mean over {len(ratios)} models", told, file, command))
    return lines


def whole_step(file: Path) -> list[Line]:
    held, command = read(file), "python -m experiments.in_place_optimizer.run"
    copied = sum(sum(measure.values) for measure in held.measures if measure.name == "bytes copied back")
    by_model = by_target(held.records, "step")
    told = ", ".join(
        f"{model} {median(of['bridge']) / median(of['inductor, fused']):.2f}"
        for model, of in by_model.items()
        if "inductor, fused" in of
    )
    return [
        Line("Training step and AdamW as one program, of `torch.compile` and fused AdamW", told, file, command),
        Line("Bytes of parameters and state copied back in such steps", f"{copied:.0f}", file, command),
    ]


def dynamic_shape(file: Path) -> list[Line]:
    from experiments.dynamic_shape import run

    records, command = read(file).records, "bridge experiment dynamic_shape"
    served = [run.compiled_for(records, name) for name in run.MODELS]
    sizes, again = sum(map(len, served)), sum(sum(programs[1:]) for programs in served)
    lines = [Line("Programs compiled for further sizes after the first", f"{again} for {sizes} sizes", file, command)]
    shares = run.shares(records, run.STATIC)
    if shares:
        told = f"{geometric_mean(shares):.2f} in the geometric mean"
        lines.append(Line("Training step with symbolic sizes, of a static program's", told, file, command))
    return lines


def dynamic_batch(file: Path) -> list[Line]:
    from experiments.dynamic_shape import run

    command = "python -m experiments.coverage.run --dynamic-batch"
    found = run.outcome(read(file).records)
    told = f"{len(found.untouched)} of {len(found.ended)}, {len(found.once)} by one compilation"
    return [Line("Real models right at two batch sizes without any event of a dynamic shape", told, file, command)]


def on_a_gpu(file: Path) -> list[Line]:
    ms: dict[str, dict[str, float]] = {}
    for record in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
        ms.setdefault(record["model"], {})[record["way"]] = record["ms"]
    lines = []
    sides = {
        "of Inductor's": ("bridge", "inductor"),
        "of Inductor's, CUDA graphs on both sides": ("bridge graphs", "inductor graphs"),
    }
    whole = {"with AdamW as one graph, of Inductor's with its graphs and fused AdamW":
             ("bridge, whole step", "inductor graphs, AdamW")}  # fmt: skip
    for side, (mine, other) in (sides | whole).items():
        ratios = [f"{model} {of[mine] / of[other]:.2f}" for model, of in ms.items() if other in of]
        what = f"Training step in bf16 on one H200, {side}"
        lines.append(Line(what, ", ".join(ratios), file, "python -m experiments.gpu.run"))
    lines.append(Line("Host time of a small MLP's step on a GPU, above a backend that does nothing",
                      _above_nothing(ms["mlp"], sides.values()), file, "python -m experiments.gpu.run"))  # fmt: skip
    return lines


def _above_nothing(ms: Mapping[str, float], sides: Iterable[tuple[str, str]]) -> str:
    plain, graphs = (f"{(ms[mine] - ms['nothing']) / (ms[other] - ms['nothing']):.2f}" for mine, other in sides)
    return f"{plain} of Inductor's; {graphs} with CUDA graphs on both sides"


def alone_on_a_gpu(file: Path) -> list[Line]:
    """Memory is compared where each way has a process of its own."""
    reserved: dict[str, dict[str, float]] = {}
    for record in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
        reserved.setdefault(record["model"], {})[record["way"]] = record["reserved_mb"]
    ratios = [f"{model} {of['bridge graphs'] / of['inductor graphs']:.2f}" for model, of in reserved.items()]
    command = 'python -m experiments.gpu.alone MODEL "bridge graphs"'
    return [Line("Memory reserved on a GPU for CUDA graphs, of Inductor's", ", ".join(ratios), file, command)]


def bandwidth(file: Path) -> list[Line]:
    """What of a copy's bandwidth kernels reach, float32 and bfloat16 apart."""
    _, *records = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    lines = []
    for dtype in ("float32", "bfloat16"):
        shares = [record["of copy"] for record in records if record["dtype"] == dtype]
        enough = sum(share >= ENOUGH for share in shares)
        told = f"{enough} of {len(shares)} reach {ENOUGH}, the median {median(shares):.2f}, the least {min(shares):.2f}"
        what = f"TVM's kernels over 64 M elements in {dtype} on one H200, of a copy's bandwidth"
        lines.append(Line(what, told, file, "python -m experiments.gpu.memory"))
    return lines


def _torch(about: Mapping[str, str]) -> str:
    """The version of torch that a file was measured with."""
    found = re.search(r"torch \d+\.\d+", about.get("versions", ""))
    return found[0] if found else "torch"


def _nodes(placements: Sequence[Placement], way: Way) -> int:
    return sum(placement.nodes for placement in placements if placement.way is way)


ENOUGH = 0.85
"""The share of a copy's bandwidth that a kernel bound by memory should reach."""

SOURCES: dict[Path, Callable[[Path], list[Line]]] = {
    EXPERIMENTS / "demo" / "results" / "ledger.jsonl": demo,
    EXPERIMENTS / "coverage" / "results" / "corpus.jsonl.gz": corpus(True),
    EXPERIMENTS / "coverage" / "results" / "corpus_generated.jsonl.gz": corpus(False),
    EXPERIMENTS / "conformance" / "results" / "opinfo_float32.jsonl.gz": conformance("float32"),
    EXPERIMENTS / "conformance" / "results" / "opinfo_float32_torch2.11.jsonl.gz": conformance("float32"),
    EXPERIMENTS / "conformance" / "results" / "opinfo_bfloat16.jsonl.gz": conformance("bfloat16"),
    EXPERIMENTS / "conformance" / "results" / "opinfo_symbolic_float32.jsonl.gz": conformance("float32", symbolic=True),
    EXPERIMENTS / "conformance" / "results" / "moduleinfo_float32.jsonl.gz": conformance("float32", "ModuleInfo"),
    EXPERIMENTS / "benchmark" / "results" / "benchmark.jsonl.gz": benchmark,
    EXPERIMENTS / "host_overhead" / "results" / "host_overhead.jsonl": host_overhead,
    EXPERIMENTS / "in_place_optimizer" / "results" / "in_place_optimizer.jsonl": whole_step,
    EXPERIMENTS / "dynamic_shape" / "results" / "sizes.jsonl.gz": dynamic_shape,
    EXPERIMENTS / "dynamic_shape" / "results" / "corpus.jsonl.gz": dynamic_batch,
    EXPERIMENTS / "gpu" / "results" / "steps.jsonl": on_a_gpu,
    EXPERIMENTS / "gpu" / "results" / "alone.jsonl": alone_on_a_gpu,
    EXPERIMENTS / "gpu" / "results" / "memory.jsonl": bandwidth,
}


def main() -> None:
    text = README.read_text(encoding="utf-8")
    new = re.sub(f"({re.escape(BEGIN)}\n).*?({re.escape(END)})", lambda m: f"{m[1]}{table()}\n{m[2]}", text, flags=re.S)
    README.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
