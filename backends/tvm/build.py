"""Have the worker build a lowered graph: module in, plan and library of kernels out."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import tvm
from tvm.target import codegen

from bridge.backends.tvm.built import ALIGNED, ANSWER, WORKER, Built, loaded, scratch
from bridge.backends.tvm.kept import Entry
from bridge.backends.tvm.loading import load_rest
from bridge.backends.tvm.lowered import Lowered
from bridge.backends.tvm.memory import FRESH_RESULT
from bridge.errors import BadOption, WorkerFailure
from bridge.ir.joint import Role
from bridge.ir.views import is_view, root_of
from bridge.options import Options
from bridge.runtime.cache import code_digest, users_cache
from bridge.runtime.worker import shared
from bridge.versions import installed


class BuildFailed(Exception):
    """The worker died of a program, hung on it, or TVM refused it.

    groups: nodes that failed together, with what was said of it, as far as is known.
    """

    def __init__(self, kind: str, detail: str, groups: Sequence[tuple[tuple[str, ...], str]] = ()) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.groups = kind, detail, tuple(groups)


def build(
    lowered: Lowered, options: Options, apart: Collection[str], careful: bool = False, entry: Entry | None = None
) -> Built:
    """Build a program, or take it from the cache. Nodes in `apart` get a kernel each.

    careful: find out what a failure is due to. entry: what to keep with it, for a graph that nobody kept before.
    Raises BuildFailed.
    """
    folder = Path(tempfile.mkdtemp(dir=scratch()))
    target = tvm_target(options.target, lowered.graph.device)
    request = requested(lowered, target, apart, writes_over_dead=not options.tune)
    cache = users_cache() if options.cache and not careful else None
    key = entry.key if entry else _key(request, options) if cache else ""
    if cache is None or entry or not cache.fetch(key, folder):
        answer = _answer(request, folder, options.timeout, careful)
        whole = careful or _searched(answer, request, lowered, folder, options)
        (folder / ANSWER).write_text(json.dumps(answer))
        if entry and whole:
            entry.write(folder)
        if cache is not None and whole:
            cache.store(key, folder)
    built = loaded(folder, lowered.graph.device)
    shutil.rmtree(folder)
    return built


def requested(lowered: Lowered, target: Any, apart: Collection[str], writes_over_dead: bool = True) -> dict[str, Any]:
    """What the worker is told of a graph. No schedules are searched for what writes over what it reads."""
    return {
        "module": tvm.ir.save_json(lowered.module),
        "names": dict(lowered.names),
        "owners": dict(lowered.owners),
        "strides": {name: list(strides) for name, strides in lowered.strides.items()},
        "views": dict(lowered.views),
        "into": dict(lowered.into),
        "fresh": [n.name for n in lowered.graph.nodes if n.target in FRESH_RESULT] if writes_over_dead else None,
        "released": released(lowered),
        "unaligned": unaligned(lowered),
        "target": target,
        "apart": sorted(apart),
    }


def _answer(request: dict[str, Any], folder: Path, timeout: float, careful: bool) -> dict[str, Any]:
    """What the worker answers, its files in the folder. Raises BuildFailed."""
    module = folder / "module.json"
    module.write_text(request["module"])
    try:
        told = {**request, "module": str(module), "folder": str(folder), "careful": careful}
        answer = shared(WORKER).call(told, timeout, meanwhile=load_rest)
    except WorkerFailure as failure:
        progress = folder / "progress"
        nodes = tuple(progress.read_text().split("\n")) if progress.exists() else ()
        raise BuildFailed(failure.kind, failure.detail, [(nodes, failure.detail)] if nodes else []) from failure
    if "failed" in answer:
        groups = [(tuple(f["nodes"]), f["detail"]) for f in answer["failed"]]
        raise BuildFailed("error", groups[0][1], groups)
    module.unlink()
    return answer


def _searched(
    answer: dict[str, Any], request: Mapping[str, Any], lowered: Lowered, folder: Path, options: Options
) -> bool:
    """Search for better kernels, if that is asked for, and add to the answer what came of it. Whether all was done."""
    if not options.tune or not answer["library"]:
        return True
    if lowered.graph.device.type != "cpu":
        answer["untuned"] = "schedules are searched on a CPU only"
        return True
    from bridge.backends.tvm.tune.ask import tuned

    told = tuned(request, request["module"], folder, options)
    answer["tuned"], answer["untuned"] = told.get("tuned", []), told.get("failed", "")
    return "failed" not in told and not told["stopped"]


def _key(request: Mapping[str, Any], options: Options) -> str:
    """A digest of all that a build depends on: the request, our own code, and the packages that compile."""
    made_from = [
        json.dumps(request, sort_keys=True),
        WORKER,
        *((f"{options.tune} s", f"{torch.get_num_threads()} threads") if options.tune else ()),
        code_digest(Path(__file__).parent),
        tvm.__version__,
        str(installed("tvm_ffi")),
    ]
    return hashlib.sha256("\n".join(made_from).encode()).hexdigest()


def tvm_target(target: str | Mapping[str, Any], device: torch.device) -> Any:
    """TVM's description of the hardware: of the graph's device, or what the user gave if it is of that kind.

    Raises BadOption for what runs elsewhere than the graph's tensors are.
    """
    own = _own_target(device)
    if target in ("tvm", "triton"):
        return own
    given: Any = tvm.target.Target(dict(target) if isinstance(target, Mapping) else target)
    kind = given.kind.name
    if kind != own["kind"]:
        remedy = "move the model and its inputs there, or choose 'tvm', which is for wherever they are"
        raise BadOption(f"target={target!r} is for {kind!r}, and the tensors are on {str(device)!r}: {remedy}")
    return {**own, **target} if isinstance(target, Mapping) else target


def _own_target(device: torch.device) -> dict[str, Any]:
    if device.type == "cpu":
        return {"kind": "llvm", "mcpu": codegen.llvm_get_system_cpu()}
    major, minor = torch.cuda.get_device_capability(device)
    return {"kind": "cuda", "arch": f"sm_{major}{minor}"}


def released(lowered: Lowered) -> list[str]:
    """The inputs that are gone when the program lets go of them: what was saved, but for what the caller had given."""
    placeholders = [node for node in lowered.graph.nodes if node.op == "placeholder"]
    roles = zip(placeholders, lowered.graph.inputs, strict=True)
    return [node.name for node, role in roles if role is Role.SAVED and not node.name.startswith("primals")]


def unaligned(lowered: Lowered) -> list[str]:
    """The views that do not begin on 16 bytes even where what they are views of does."""
    found = []
    for node in lowered.graph.nodes:
        if node.name in lowered.strides and is_view(node):
            view, whole = node.meta["val"], root_of(node).meta["val"]
            begins = view.storage_offset() - whole.storage_offset() if isinstance(whole, torch.Tensor) else 1
            if not isinstance(begins, int) or begins * view.element_size() % ALIGNED:
                found.append(node.name)
    return found
