"""Write complex arithmetic as arithmetic of pairs of reals, which kernels hold, around what takes complex tensors.

A complex value has two forms: *whole*, one complex tensor, and *in parts*, its real and its imaginary part. What has
a rule reads and gives parts; every other op, and the caller, reads and gives whole tensors. Each form is made where it
is first asked for. A torch view of a whole tensor stays one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg
from torch.utils._pytree import tree_flatten, tree_unflatten

from bridge.ir.joint import Graph
from bridge.ir.shapes import symbols_of, tensors_of
from bridge.ir.views import base_of, is_view
from bridge.ledger import Ledger
from bridge.passes.canonicalise import memory_order
from bridge.passes.complex_rules import RULES, Complex
from bridge.passes.decompose import decompositions
from bridge.passes.fourier import TRANSFORMS, takes

aten = torch.ops.aten

Rules = Mapping[OpOverload, Callable[..., Any]]


def take_apart(graph: Graph, ledger: Ledger) -> Graph:
    """The same graph, with pairs of reals for complex values wherever there is a rule for what is done to them."""
    return _apart(graph, RULES, lambda node: True)


def take_transforms_apart(graph: Graph, ledger: Ledger) -> Graph:
    """As `take_apart`, and Fourier transforms as products of real matrices."""
    return _apart(graph, {**RULES, **TRANSFORMS}, lambda node: node.target not in TRANSFORMS or takes(node))


def _apart(graph: Graph, rules: Rules, taken: Callable[[fx.Node], bool]) -> Graph:
    if not any(tensor.is_complex() for node in graph.nodes for tensor in tensors_of(node)):
        return graph
    return replace(graph, module=_Apart(graph.module, rules, taken).run())


class _Apart:
    """rules: what is done in place of an overload. taken: whether it is done for a node."""

    def __init__(self, module: fx.GraphModule, rules: Rules, taken: Callable[[fx.Node], bool]) -> None:
        self._module = module
        self._rules = rules
        self._taken = taken
        self._graph = fx.Graph()
        self._whole: dict[fx.Node, fx.Node] = {}
        self._parts: dict[fx.Node, Any] = {}

    def run(self) -> fx.GraphModule:
        for node in self._module.graph.nodes:
            if not self._has_rule(node):
                self._whole[node] = self._graph.node_copy(node, self._in_whole)
            elif not _is_complex(node):
                self._whole[node] = self._real(node)
        self._graph.lint()
        return fx.GraphModule(self._module, self._graph)

    def _has_rule(self, node: fx.Node) -> bool:
        """Whether the node is done to parts. A pick from several results goes with what gives them."""
        if node.target is operator.getitem:
            source = node.args[0]
            return isinstance(source, fx.Node) and self._has_rule(source)
        touches = node.op == "call_function" and any(tensor.is_complex() for tensor in tensors_of(node))
        return touches and node.target in self._rules and not symbols_of(node) and self._taken(node)

    def _in_whole(self, node: fx.Node) -> fx.Node:
        """A node of the new graph that is this one's value, complex or not."""
        if node not in self._whole:
            if is_view(node):
                self._whole[node] = self._graph.node_copy(node, self._in_whole)
            else:
                order = memory_order(node.meta["val"])
                self._whole[node] = self._traced(node, lambda z: joined(z, order), (self._in_parts(node),), {})
        return self._whole[node]

    def _in_parts(self, node: fx.Node) -> Any:
        """The two nodes of the new graph that are the parts of this one's value; a list of such for several results."""
        if node not in self._parts:
            if self._has_rule(node):
                self._parts[node] = self._by_rule(node)
            else:
                self._parts[node] = self._traced(node, parted, (self._in_whole(node),), {})
        return self._parts[node]

    def _real(self, node: fx.Node) -> fx.Node:
        """What is real of complex values, in memory as it was captured."""
        if is_view(node) and self._lies(base_of(node)):
            return self._graph.node_copy(node, self._in_whole)
        made = self._by_rule(node)
        if is_view(made) or made.target is operator.getitem or made.op != "call_function":
            made = self._graph.call_function(aten.clone.default, (made,))
        made.meta = dict(node.meta)
        return made

    def _lies(self, node: fx.Node) -> bool:
        """Whether the value is in memory as a whole tensor anyway."""
        return node in self._whole or not self._has_rule(node) or (is_view(node) and self._lies(base_of(node)))

    def _by_rule(self, node: fx.Node) -> Any:
        if node.target is operator.getitem:
            source, position = node.args
            return self._in_parts(source)[position]  # type: ignore[arg-type, index]
        assert isinstance(node.target, OpOverload), "only overloads have rules"
        args, kwargs = map_arg((node.args, node.kwargs), self._argument)
        return self._traced(node, self._rules[node.target], args, kwargs)

    def _argument(self, node: fx.Node) -> Any:
        return self._in_parts(node) if _is_complex(node) else self._whole[node]

    def _traced(self, node: fx.Node, rule: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """The ops of a rule, entered in the new graph in place of a node; what the rule gives, as nodes."""
        leaves, form = tree_flatten((args, kwargs))
        places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, fx.Node)]
        results: list[Any] = []

        def called(*tensors: torch.Tensor) -> list[torch.Tensor]:
            filled = dict(zip(places, tensors, strict=True))
            args, kwargs = tree_unflatten([filled.get(place, leaf) for place, leaf in enumerate(leaves)], form)
            made, shape = tree_flatten(rule(*args, **kwargs))
            results.append(shape)
            return made

        with _mode_of(node):
            given = [leaves[place].meta["val"] for place in places]
            traced = make_fx(called, decomposition_table=decompositions())(*given)
        entered = dict(zip(traced.graph.find_nodes(op="placeholder"), (leaves[place] for place in places), strict=True))
        for inner in traced.graph.nodes:
            if inner.op == "call_function":
                entered[inner] = self._graph.node_copy(inner, entered.__getitem__)
                entered[inner].meta = {**node.meta, "val": inner.meta["val"]}
        made = [entered[inner] for inner in traced.graph.output_node().args[0]]  # type: ignore[index, union-attr]
        return tree_unflatten(made, results[0])


def _is_complex(node: fx.Node) -> bool:
    value = node.meta.get("val")
    values = value if isinstance(value, (list, tuple)) else [value]
    return any(isinstance(v, torch.Tensor) and v.is_complex() for v in values)


def _mode_of(node: fx.Node) -> Any:
    """The mode in which the node's tensors are fake."""
    return next(tensor.fake_mode for tensor in tensors_of(node))  # type: ignore[attr-defined]


def parted(whole: torch.Tensor) -> Complex:
    """The parts of a tensor that lies in memory as pairs, conjugated by a flag or not."""
    pairs = torch.view_as_real(whole.conj() if whole.is_conj() else whole)
    re, im = pairs.select(-1, 0), pairs.select(-1, 1)
    return Complex(re, -im if whole.is_conj() else im)


def joined(z: Complex, order: list[int] | None) -> torch.Tensor:
    """A tensor of these parts whose dimensions lie in memory in an order, plainly if in none."""
    if order is None or order == sorted(order):
        return torch.view_as_complex(torch.stack(z, -1))
    pairs = torch.stack([z.re.permute(order), z.im.permute(order)], -1)
    return torch.view_as_complex(pairs).permute([order.index(dim) for dim in range(len(order))])
