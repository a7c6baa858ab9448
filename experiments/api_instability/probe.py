"""What a release of torch or TVM has of the names that the bridge uses, read from its wheel with nothing imported.

    python -m experiments.api_instability.probe WHEEL…              print it as JSON lines
    python -m experiments.api_instability.probe --keep WHEEL…       and keep it in results/, in place of what was kept
    python -m experiments.api_instability.probe --record            make bridge/fingerprints.json of what is kept

A wheel for another system will do: the Python sources and stubs in them are the same.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bridge.signatures import Found, Sources, refuses
from bridge.touched import TORCH, numbers
from experiments.api_instability.uses import uses

RESULTS = Path(__file__).parent / "results"
RECORDED = Path(__file__).parents[2] / "bridge" / "fingerprints.json"

COMPAT = "bridge.backends.tvm.compat"
TVM_DOORS = {
    f"{COMPAT}.R": "tvm.relax.op",
    f"{COMPAT}.T": "tvm.tirx.script.builder",
    "tvm.script.ir_builder.tirx": "tvm.tirx.script.builder",  # under this name it is made at run time
    f"{COMPAT}.IRBuilder": "tvm.script.ir_builder.IRBuilder",
    f"{COMPAT}.ir": "tvm.ir",
    f"{COMPAT}.relax": "tvm.relax",
    f"{COMPAT}.te": "tvm.te",
    f"{COMPAT}.tirx": "tvm.tirx",
    f"{COMPAT}.renew_defs": "tvm.s_tir.renew_defs",
}
"""What the names that compat.py hands out stand for."""

NOT_TAKEN = {
    "torch._functorch.aot_autograd.aot_module_simplified": "aot_module_simplified",
    "torch._functorch.aot_autograd.aot_export_joint_with_descriptors": "joint with descriptors",
    "torch._functorch.aot_autograd.aot_compile_joint_with_descriptors": "joint with descriptors",
    "torch._functorch.aot_autograd.prepare_aot_module_simplified": "stages",
    "torch._functorch._aot_autograd.graph_compile.aot_stage2_compile": "stages",
    "torch._functorch._aot_autograd.graph_compile.aot_stage2_autograd": "stages",
    "torch._functorch._aot_autograd.schemas.AOTConfig": "stages",
    "torch._functorch._aot_autograd.schemas.ViewAndMutationMeta": "stages",
    "torch._dynamo.functional_export.dynamo_graph_capture_for_export": "joint with descriptors",
    "torch.fx.experimental.proxy_tensor.make_fx": "make_fx",
    "torch._functorch.partitioners._extract_fwd_bwd_modules": "a partitioner of one's own",
}
"""Names that other ways to a joint graph stand on, by the way, for comparison."""

ABSENT = ""


@dataclass(frozen=True)
class Reading:
    """One name in one release. text: what it is there, `ABSENT` where it is not there.

    refused, adapted: why it cannot be called as the newest adapter calls it, and as the adapter for this series does.
    way: the way to a joint graph that stands on it, "ours" for the one that is taken.
    """

    package: str
    release: str
    name: str
    file: str
    text: str
    refused: str
    adapted: str
    way: str = "ours"

    @property
    def series(self) -> str:
        return ".".join(self.release.split(".")[:2])


def readings(wheel: Path) -> Iterator[Reading]:
    """Everything of interest in one wheel of torch's or TVM's."""
    package, release, *_ = wheel.name.split("-")
    sources = Sources(wheel)
    release = release.split("+")[0]
    yield from _torch(sources, release) if package == "torch" else _tvm(sources, release)


def _torch(sources: Sources, release: str) -> Iterator[Reading]:
    series = ".".join(release.split(".")[:2])
    newest = "99"
    for touched in TORCH:
        found = touched.found(sources)
        why = [refused(found, touched.call(which)) for which in (newest, series)]
        yield Reading("torch", release, touched.name, *_where(found), *why)
    for name, way in NOT_TAKEN.items():
        yield Reading("torch", release, name, *_where(sources.find(name)), "", "", way)


def _tvm(sources: Sources, release: str) -> Iterator[Reading]:
    for name, calls in tvm_names().items():
        found = sources.find(name)
        why = next(filter(None, (refused(found, call) for call in sorted(calls) or [""])), "")
        yield Reading("tvm", release, name, *_where(found), why, why)


def tvm_names() -> dict[str, set[str]]:
    """Every name of TVM's that the backend reaches, through compat.py or by an import of its own, and how it is called.

    Relax's ops and TVM's nodes are its public surface; it has no other that would stay.
    """
    calls: dict[str, set[str]] = {}
    for use in sorted(uses("tvm", TVM_DOORS), key=lambda use: use.name):
        calls.setdefault(use.name, set()).update({use.call} - {""})
    calls.pop("tvm", None)
    return calls


def refused(found: Found | None, call: str) -> str:
    """Why a call cannot be made, "" where it can."""
    return "absent" if found is None else (refuses(found, call) or "") if call else ""


def _where(found: Found | None) -> tuple[str, str]:
    return (found.file, found.text) if found is not None else ("", ABSENT)


def kept(package: str) -> list[Reading]:
    """What is kept of a package, the oldest release first."""
    lines = gzip.decompress((RESULTS / f"{package}.jsonl.gz").read_bytes()).decode("utf-8").splitlines()
    held = [Reading(**json.loads(line)) for line in lines]
    return sorted(held, key=lambda reading: numbers(reading.release.replace(".post", ".")))


def keep(package: str, new: Iterable[Reading]) -> None:
    """Keep what was read, in place of what is kept of the same releases."""
    new = list(new)
    path = RESULTS / f"{package}.jsonl.gz"
    old = kept(package) if path.exists() else []
    read = {reading.release for reading in new}
    lines = [json.dumps(asdict(reading)) for reading in [*(r for r in old if r.release not in read), *new]]
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode("utf-8"), mtime=0))


def touched(readings: Iterable[Reading]) -> list[Reading]:
    """Those of what the bridge uses now: a release that was read long ago may have more names, and fewer."""
    names = {touched.name for touched in TORCH}
    return [one for one in readings if one.way == "ours" and (one.package != "torch" or one.name in names)]


def recorded() -> dict[str, dict[str, dict[str, str]]]:
    """package → series → name → text, of the last release kept of each series and of what the bridge uses."""
    made: dict[str, dict[str, dict[str, str]]] = {}
    for package in ("torch", "tvm"):
        series: dict[str, dict[str, str]] = {}
        for reading in touched(kept(package)):
            series.setdefault(reading.series, {})[reading.name] = reading.text
        made[package] = series
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", nargs="*", type=Path)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args(arguments)
    for wheel in given.wheels:
        found = list(readings(wheel))
        for reading in found:
            print(json.dumps(asdict(reading)))
        if given.keep:
            keep(found[0].package, found)
    if given.record:
        RECORDED.write_text(json.dumps(recorded(), indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
