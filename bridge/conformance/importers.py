"""Who converts: the bridge, TVM's own importer, or a function of anybody's.

An importer gets a graph of ATen calls and its inputs, and gives what runs it. What it raises says that it does not take
the graph; what is raised later, when the graph is run, is its fault.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx

from bridge.errors import BridgeError

Run = Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]
Importer = Callable[[fx.GraphModule, Sequence[torch.Tensor]], Run]


class UnknownImporter(BridgeError):
    """There is no importer of that name."""


class Refused(Exception):
    """An importer does not take a graph, for the reason given."""


def importer(name: str) -> Importer:
    """The importer of a name, or the function that "module:function" names. Raises UnknownImporter."""
    if name in IMPORTERS:
        return IMPORTERS[name]
    module, colon, function = name.partition(":")
    if not colon:
        raise UnknownImporter(f"no importer {name!r}; there are {', '.join(IMPORTERS)}, or give module:function")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Importer = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise UnknownImporter(f"{name}: {error}") from error
    return found


def bridges(module: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Run:
    """The bridge, with kernels of its own for everything."""
    from bridge.backends.tvm.refuse import refusal
    from bridge.ir.compiled import Way
    from bridge.ir.joint import Graph, Phase, Role
    from bridge.ledger import Ledger
    from bridge.options import Options
    from bridge.pipeline import compile_graph

    for node in module.graph.nodes:
        refused = refusal(node)
        if refused is not None:
            raise Refused(refused.detail)
    results: Any = module.graph.output_node().args[0]
    roles = (Role.INPUT,) * len(inputs), (Role.OUTPUT,) * len(results)
    graph = Graph("calls", Phase.INFERENCE, module, *roles)

    def run(given: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        ledger = Ledger()
        compiled = compile_graph(graph, Options(library=False), ledger)
        if not set(compiled.placement.values()) <= {Way.GENERATED}:
            raise RuntimeError("; ".join(f"{event.kind}: {event.detail}" for event in ledger if event.node))
        return compiled.run(list(given))

    return run


def tvms(module: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Run:
    """TVM's importer of exported programs with its own decompositions, and TVM's virtual machine."""
    from torch.export import default_decompositions
    from tvm.relax.frontend.torch import from_exported_program
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    from bridge.backends.tvm.machine import machine

    names = ExportedProgramImporter().create_convert_map()
    decomposed = default_decompositions()
    for node in module.graph.nodes:
        known = node.op != "call_function" or node.target in decomposed or node.target.__name__ in names
        if not known:
            raise Refused(f"no converter of {node.target}")
    imported = from_exported_program(torch.export.export(module, tuple(inputs)))
    return lambda given: machine(imported)(given)


IMPORTERS: dict[str, Importer] = {"bridge": bridges, "tvm": tvms}
