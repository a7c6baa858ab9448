"""TVM is loaded in two parts, which come to what an import gives."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import nullcontext
from typing import Any

import pytest

from bridge import pipeline
from bridge.backends.tvm.loading import load_core, load_rest

LOOKED_AT = """
import json, sys
import tvm_ffi
{loaded}
import tvm
op = tvm.ir.Op
found = {{
    "early": early,
    "late": "tvm.backend.hexagon" in sys.modules,
    "failed before": "tvm.runtime.disco" in sys.modules,
    "names": sorted(dir(tvm)) + sorted(dir(tvm.tirx)) + sorted(dir(tvm.script.tirx)),
    "printed": {{n: str(op.get(n).get_attr("TScriptPrinterName")) for n in op.list_op_names()}},
    "same": tvm.ir.Op.get is tvm.ir.op.Op.__dict__["get"].__func__ and tvm.ir.Op.get.__module__ == "tvm.ir.op",
    "devices": str(tvm.target.Target("nvidia/nvidia-h100")),
}}
print(json.dumps(found))
"""

IN_PARTS = """
from bridge.backends.tvm.loading import load_core, load_rest
load_core()
early = "tvm.backend.hexagon" in sys.modules
load_rest()
"""


def looked_at(loaded: str) -> dict[str, Any]:
    text = LOOKED_AT.format(loaded=loaded)
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)


def test_both_parts_are_what_an_import_gives() -> None:
    parts, whole = looked_at(IN_PARTS), looked_at("early = False\nimport tvm")
    assert not parts["early"]
    assert parts["late"]
    assert parts == whole


def test_what_is_loaded_already_stays() -> None:
    import tvm

    load_core()
    load_rest()
    assert sys.modules["tvm"] is tvm


@pytest.mark.parametrize("fails", [False, True])
def test_the_rest_follows_whatever_becomes_of_a_graph(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """As where the launcher of threads is compiled, and the graph is found in the cache or fails in a pass."""
    loaded: list[str] = []

    def compiled(*given: Any) -> str:
        if fails:
            raise RuntimeError("a pass fails")
        return "found"

    monkeypatch.setattr(pipeline, "_compiled", compiled)
    monkeypatch.setattr(pipeline, "load_rest", lambda: loaded.append("rest"))
    with pytest.raises(RuntimeError) if fails else nullcontext():
        pipeline.compile_graph(None, None, None)  # type: ignore[arg-type]
    assert loaded == ["rest"]
