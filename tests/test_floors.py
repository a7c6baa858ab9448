"""Imports go down. The floors are drawn in docs/architecture.md; this is what keeps them."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

FLOORS = {
    "bridge.errors": 0,
    "bridge.options": 0,
    "bridge.signatures": 0,
    "bridge.touched": 0,
    "bridge.versions": 0,
    "bridge.ledger": 1,
    "bridge.ir": 2,
    "bridge.frontends": 3,
    "bridge.passes": 3,
    "bridge.partition": 3,
    "bridge.runtime": 3,
    "bridge.report": 3,
    "bridge.backends": 4,
    "bridge.generation": 5,
    "bridge.pipeline": 6,
    "bridge": 7,
}
"""The floor of each room. What has no line of its own (api, cli, demo) is the top room, `bridge`."""


OPEN = ("bridge", "bridge.errors", "bridge.ledger", "bridge.signatures", "bridge.touched", "bridge.backends.triton")
"""The rooms that experiments may use, kernels to time them; and they may run what may crash in a worker."""


def room(module: str) -> str:
    """The room of a module; each backend is a room of its own."""
    parts = module.split(".")
    if parts[:2] == ["bridge", "backends"]:
        return ".".join(parts[:3])
    return next((name for name in (".".join(parts[:2]), parts[0]) if name in FLOORS), module)


def floor(module: str) -> int:
    """The floor of a module. Raises KeyError for one that is on none."""
    return FLOORS[".".join(room(module).split(".")[:2])]


def violation(importer: str, imported: str) -> str | None:
    """Why one module may not import another, None where it may."""
    if imported.startswith("tests") or (imported.startswith("experiments") and not importer.startswith("experiments")):
        return f"{importer} imports {imported}: nothing stands on it"
    if importer.startswith("experiments"):
        is_open = imported.startswith("experiments") or room(imported) in OPEN or imported == "bridge.runtime.worker"
        return None if is_open else f"{importer} imports {imported}: use what bridge itself offers"
    above, below = floor(importer), floor(imported)
    if room(importer) == room(imported) or above == below == 0:
        return None
    if above == 4 and (below <= 2 or room(imported) == "bridge.runtime"):
        return None
    if above != 4 and below < above:
        return None
    return f"{importer} (floor {above}) imports {imported} (floor {below})"


def sources() -> Iterator[tuple[str, Path]]:
    """Every module of ours by its one import name, with its file."""
    for folder in ("bridge", "frontends", "backends", "experiments"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(part for part in parts if part != "__init__")
            yield name if folder in ("bridge", "experiments") else f"bridge.{name}", path


def imports(path: Path) -> Iterator[str]:
    """What a file imports of ours, `from a import b` as both `a.b` and, where b is no module, `a`."""
    known = {name for name, _ in sources()}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: name the whole module, as every other import does"
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            found = [name if name in known else str(node.module) for name in full]
        else:
            continue
        yield from (name for name in found if name.split(".")[0] in ("bridge", "tests", "experiments"))


def test_imports_go_down() -> None:
    pairs = {(module, imported) for module, path in sources() for imported in imports(path)}
    assert len(pairs) > 50
    assert not [wrong for pair in sorted(pairs) if (wrong := violation(*pair))]


def test_the_guard_tells_up_and_sideways_from_down() -> None:
    assert violation("bridge.partition.support", "bridge.backends.tvm.table") == (
        "bridge.partition.support (floor 3) imports bridge.backends.tvm.table (floor 4)"
    )
    assert violation("bridge.report.html", "bridge.runtime.worker")
    assert violation("bridge.backends.tvm.build", "bridge.backends.eager")
    assert violation("bridge.backends.tvm.build", "bridge.partition.support")
    assert violation("bridge.pipeline", "bridge.api")
    assert violation("bridge.ledger.event", "bridge")
    assert not violation("bridge.backends.tvm.build", "bridge.runtime.worker")
    assert not violation("bridge.backends.tvm.build", "bridge.backends.tvm.ops.view")
    assert not violation("bridge.pipeline", "bridge.backends.tvm.build")
    assert not violation("bridge.cli", "bridge.demo.run")
    assert violation("experiments.coverage.run", "bridge.runtime.audit")
    assert violation("bridge.demo.run", "experiments.models")
    assert not violation("experiments.models", "bridge.demo.digits")


def test_importing_bridge_loads_nothing_heavy() -> None:
    program = (
        "import bridge, sys; print(*sorted({'torch', 'tvm', 'tvm_ffi', 'triton', 'rich', 'numpy'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("name", ["backends", "frontends"])
def test_a_folder_has_one_import_name(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, text=True)
    assert f"import bridge.{name}, not {name}: one module, one name" in done.stderr


def test_files_are_short() -> None:
    files = [path for _, path in sources()] + sorted((ROOT / "tests").rglob("*.py"))
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    assert not {name: length for name, length in lengths.items() if length > 400}
