"""Which releases of TVM and of tvm-ffi the bridge runs on, tried in processes that may die.

    python -m experiments.api_instability.tvm FOLDER      installs each pair below FOLDER with pip, and tries it

Every step is a process of its own: a wrong pair ends it by a signal, and the next step is to be seen all the same.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "tvm_runs.jsonl"
ROOT = Path(__file__).parents[2]
LIMIT = 900.0

PAIRS = (
    ("0.25.0.post1", "0.1.12"),
    ("0.25.0.post1", ""),
    ("0.26.0", "0.1.13.post3"),
    ("0.26.0", ""),
    ("0.27.0.post1", "0.1.14.post0"),
    ("0.27.0.post1", "0.1.14.post1"),
    ("0.27.0.post1", "0.1.15.post1"),
    ("0.27.0.post1", "0.1.15.post2"),
)
"""apache-tvm and apache-tvm-ffi; "" for the one that pip chooses, which is the newest."""

_MODULE = """
import tvm
from tvm import te
x = te.placeholder((8,), name="x")
f = te.create_prim_func([x, te.compute((8,), lambda i: x[i] + 1, name="y")])
module = tvm.IRModule({"main": f})
"""

STEPS = {
    "import tvm": "import tvm",
    "import the bridge's door": "import bridge.backends.tvm.compat",
    "import the rows": "from bridge.backends.tvm.table import table; assert len(table()) > 100",
    "write a module as JSON": _MODULE + "import tvm.ir; assert tvm.ir.load_json(tvm.ir.save_json(module))",
    "pickle a module": _MODULE + "import pickle; assert pickle.loads(pickle.dumps(module))",
    "build and run a kernel": _MODULE
    + "import torch; k = tvm.compile(module, target='llvm'); a, b = torch.ones(8), torch.zeros(8)\n"
    + "k['main'](a, b); assert b.tolist() == [2.0] * 8",
    "train a function": "from bridge.doctor.tried import kernel; state, said, _ = kernel(); assert state == 'ok', said",
}


@dataclass(frozen=True)
class Run:
    """How one step went with one pair. outcome: "ok", a signal's name, "raised" or "hung"; said: its last line."""

    tvm: str
    ffi: str
    step: str
    outcome: str
    said: str


def installed(folder: Path, tvm: str, ffi: str) -> tuple[Path, str]:
    """Where the pair lies, and the version of tvm-ffi in it."""
    place = folder / f"tvm-{tvm}-{ffi or 'any'}"
    if not place.exists():
        wanted = [f"apache-tvm=={tvm}", f"apache-tvm-ffi=={ffi}" if ffi else "apache-tvm-ffi"]
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(place)]
        subprocess.run([*command, *(wanted if ffi else [wanted[0], _needed(folder, tvm)])], check=True)
    (found,) = place.glob("apache_tvm_ffi-*.dist-info")
    return place, found.name.split("-")[1].removesuffix(".dist")


def _needed(folder: Path, tvm: str) -> str:
    """What a release of TVM itself asks of tvm-ffi."""
    report = folder / f"{tvm}.json"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps"]
    subprocess.run([*command, "--report", str(report), f"apache-tvm=={tvm}"], check=True)
    (item,) = json.loads(report.read_text())["install"]
    return next(wanted for wanted in item["metadata"]["requires_dist"] if wanted.startswith("apache-tvm-ffi"))


def tried(place: Path, tvm: str, ffi: str) -> Iterator[Run]:
    """Each step with the pair in `place`, which stands before everything else on the import path."""
    environment = {**os.environ, "PYTHONPATH": f"{place}:{ROOT}", "BRIDGE_CACHE_DIR": str(place / "cache")}
    for step, program in STEPS.items():
        command = [sys.executable, "-c", program]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT, cwd=place)
        except subprocess.TimeoutExpired:
            yield Run(tvm, ffi, step, "hung", f"after {LIMIT:.0f} s")
            continue
        said = "" if done.returncode == 0 else (done.stderr.strip().splitlines() or [""])[-1]
        code = done.returncode
        outcome = "ok" if code == 0 else signal.Signals(-code).name if code < 0 else "raised"
        yield Run(tvm, ffi, step, outcome, said[:300].replace(str(place), "…"))


def main(arguments: Sequence[str] | None = None) -> None:
    (folder,) = map(Path, sys.argv[1:] if arguments is None else arguments)
    folder.mkdir(parents=True, exist_ok=True)
    runs = []
    for tvm, wanted in PAIRS:
        place, ffi = installed(folder, tvm, wanted)
        for run in tried(place, tvm, ffi):
            print(f"{run.tvm} {run.ffi} {run.step}: {run.outcome} {run.said}", flush=True)
            runs.append(run)
    RESULTS.write_text("".join(json.dumps(asdict(run)) + "\n" for run in runs), encoding="utf-8")


if __name__ == "__main__":
    main()
