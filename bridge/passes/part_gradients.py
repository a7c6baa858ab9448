"""Ask for the gradients of a depthwise convolution apart, where that of the weight is better a kernel's on a CPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import fx

from bridge.ir.convolutions import has_a_weight_by_channels
from bridge.ir.joint import Graph, copied
from bridge.ledger import Ledger
from bridge.passes.canonicalise import new_node

aten = torch.ops.aten

WEIGHT, ALL = 1, 3


def part_gradients(graph: Graph, ledger: Ledger) -> Graph:
    """The same graph with one node for the weight's gradient, and one for the others."""
    if not any(_parts(node) for node in graph.nodes):
        return graph
    module = copied(graph.module)
    for node in [node for node in module.graph.nodes if _parts(node)]:
        *given, mask = node.args
        with module.graph.inserting_before(node):
            alone = new_node(module.graph, node, node.target, (*given, [n == WEIGHT for n in range(ALL)]))
            rest = new_node(module.graph, node, node.target, (*given, [n != WEIGHT and mask[n] for n in range(ALL)]))
        for pick in list(node.users):
            pick.replace_input_with(node, alone if pick.args[1] == WEIGHT else rest)
        module.graph.erase_node(node)
    module.graph.lint()
    module.recompile()
    return replace(graph, module=module)


def _parts(node: fx.Node) -> bool:
    if not has_a_weight_by_channels(node):
        return False
    mask: Any = node.args[-1]
    return mask[0] or mask[2]
