"""Write what Python does with fake tensors into a graph, in functional form: what changes in place gets a new value.

Numbers that are not known while the graph is written, such as a learning rate, are symbols. Where an op takes one, the
graph takes a 0-d tensor of float64, which says the same: it does not widen the type of the tensors that it meets.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import TorchDispatchMode

from bridge.frontends.torch.numbers import Numbers
from bridge.ir.shapes import SYMBOLIC
from bridge.ir.trees import tree_leaves, tree_map

aten = torch.ops.aten

SAME = frozenset({aten.detach.default, aten.alias.default, aten.lift_fresh.default})
"""Overloads whose result is the very tensor that they are given."""


class NotRecorded(Exception):
    """Python does something that a functional graph has no words for. The message says what."""


@dataclass
class _Slot:
    """A piece of memory: the node of what it holds now, and the fake tensor that shows all of it."""

    node: fx.Node
    whole: torch.Tensor
    changes: int = 0


class Recorder(TorchDispatchMode):
    """Active inside a fake mode, it appends a node to `graph` for each op that computes.

    Tensors are made known by `know`; `node_of` gives the node of what a tensor holds at last.
    """

    def __init__(self, graph: fx.Graph, numbers: Numbers) -> None:
        super().__init__()
        self._graph = graph
        self._numbers = numbers
        self._slots: dict[int, _Slot] = {}
        self._views: dict[int, tuple[torch.Tensor, fx.Node, int]] = {}
        self._fakes: dict[fx.Node, Any] = {}

    def know(self, tensor: torch.Tensor, node: fx.Node) -> None:
        """A fake tensor that stands for what a node gives."""
        self._slots[_memory(tensor)] = _Slot(node, tensor)
        self._fakes[node] = tensor

    def node_of(self, tensor: torch.Tensor) -> fx.Node:
        """The node of what a fake tensor holds now. Raises NotRecorded for one that is not known."""
        slot = self._slots.get(_memory(tensor))
        if slot is None:
            raise NotRecorded("a tensor is read that is neither a parameter, a gradient nor a state")
        if _lies_alike(tensor, slot.whole):
            return slot.node
        _, node, changes = self._views.get(id(tensor), (tensor, None, -1))
        if node is None or changes != slot.changes:
            raise NotRecorded("a view is read of a tensor that was changed in place meanwhile")
        return node

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is aten._local_scalar_dense.default:
            value = func(*args)
            self._numbers.read(value, self.node_of(args[0]))
            return value
        if func in SAME:
            return func(*args, **kwargs)
        return (self._change if func._schema.is_mutable else self._compute)(func, args, kwargs)

    def _compute(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        value = func(*args, **kwargs)
        node = self._written(func, args, kwargs, value)
        for position, result in enumerate(value) if isinstance(value, tuple | list) else ():
            self._enter(result, self._new(operator.getitem, (node, position), {}, result))
        if isinstance(value, torch.Tensor):
            self._enter(value, node)
        return value

    def _enter(self, value: torch.Tensor, node: fx.Node) -> None:
        slot = self._slots.get(_memory(value))
        if slot is None:
            self.know(value, node)
        else:
            self._views[id(value)] = (value, node, slot.changes)

    def _change(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """An op that changes its first argument, or writes into `out`, as one that gives the new value."""
        changed = kwargs["out"] if "out" in kwargs else args[0] if args else None
        slot = self._slots.get(_memory(changed)) if isinstance(changed, torch.Tensor) else None
        if slot is None or not _lies_alike(changed, slot.whole):  # type: ignore[arg-type]
            raise NotRecorded(f"{func} changes a view, a list, or a tensor from elsewhere")
        plain, args, kwargs = functional(func, args, {k: v for k, v in kwargs.items() if k != "out"})
        value, whole = plain(*args, **kwargs), slot.whole
        node = self._written(plain, args, kwargs, value)
        if value.dtype != whole.dtype:
            value = value.to(whole.dtype)
            node = self._new(aten._to_copy.default, (node,), {"dtype": whole.dtype}, value)
        if value.shape != whole.shape:
            node = self._new(aten.expand.default, (node, list(whole.shape)), {}, value.expand(whole.shape))
        slot.node, slot.changes = node, slot.changes + 1
        return changed

    def _written(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], value: Any) -> fx.Node:
        """The call as a node, or as several where it takes symbols that are no operands of their own."""
        args, kwargs = tree_map(self._argument, (tuple(args), kwargs))
        rule = RULES.get(func)
        if rule is not None:
            args, kwargs = rule(self, *args, **kwargs)
            func = aten.add.Tensor if func is not aten.sub.Tensor else func
        operands = [n for n, a in enumerate(func._schema.arguments) if str(a.type) == "Tensor"]
        left = [*(a for n, a in enumerate(args) if n not in operands), *kwargs.values()]
        if any(isinstance(leaf, SYMBOLIC) for leaf in tree_leaves(left)):
            raise NotRecorded(f"{func} takes a number that changes from step to step")
        return self._new(func, tuple(map(self._operand, args)), kwargs, value)

    def _argument(self, value: Any) -> Any:
        return self.node_of(value) if isinstance(value, torch.Tensor) else value

    def _operand(self, value: Any) -> Any:
        return self._numbers.node(value) if isinstance(value, SYMBOLIC) else value

    def emit(self, func: Any, *args: Any) -> fx.Node:
        """A node on the way, its operands nodes, numbers and symbols."""
        operands = tuple(map(self._operand, args))
        value = func(*(self._fakes.get(a, a.meta["val"]) if isinstance(a, fx.Node) else a for a in operands))
        return self._new(func, operands, {}, value)

    def _new(self, func: Any, args: Any, kwargs: dict[str, Any], value: Any) -> fx.Node:
        node = self._graph.call_function(func, args, kwargs)
        node.meta["val"] = self._fakes[node] = value
        return node


# Ops with numbers that are factors ------------------------------------------------------------------------------------


def _sum(recorder: Recorder, x: Any, other: Any, alpha: Any = 1) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(alpha, SYMBOLIC):
        return (x, recorder.emit(aten.mul.Tensor, other, alpha)), {}
    return (x, other), {} if alpha == 1 else {"alpha": alpha}


def _addcmul(recorder: Recorder, x: Any, a: Any, b: Any, value: Any = 1) -> tuple[tuple[Any, ...], dict[str, Any]]:
    product = recorder.emit(aten.mul.Tensor, a, b)
    return (x, recorder.emit(aten.mul.Tensor, product, value)), {}


def _addcdiv(recorder: Recorder, x: Any, a: Any, b: Any, value: Any = 1) -> tuple[tuple[Any, ...], dict[str, Any]]:
    scaled = recorder.emit(aten.mul.Tensor, a, value)
    return (x, recorder.emit(aten.div.Tensor, scaled, b)), {}


def _lerp(recorder: Recorder, x: Any, end: Any, weight: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    way = recorder.emit(aten.sub.Tensor, end, x)
    return (x, recorder.emit(aten.mul.Tensor, way, weight)), {}


RULES = {
    aten.add.Tensor: _sum,
    aten.sub.Tensor: _sum,
    aten.addcmul.default: _addcmul,
    aten.addcdiv.default: _addcdiv,
    aten.lerp.Scalar: _lerp,
}
"""How ops are written that scale an operand: the arguments of the sum, or the difference, that they end in."""


def functional(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Sequence[Any], dict[str, Any]]:
    """The call that gives as a new value what this one writes into its first argument, or into `out`."""
    if func is aten.zero_.default:
        return aten.full_like.default, (args[0], 0), {}
    if func is aten.fill_.Scalar:
        return aten.full_like.default, args, {}
    if func is aten.copy_.default:
        return (
            (aten.clone.default, args[1:2], {})
            if args[0].dtype == args[1].dtype
            else ((aten._to_copy.default, args[1:2], {"dtype": args[0].dtype}))
        )
    _, name, overload = str(func).split(".")
    plain = getattr(aten, name.removesuffix("_"), None)
    wanted = overload.removesuffix("out").removesuffix("_") or "default"
    for candidate in (wanted, "Tensor") if plain is not None else ():
        if candidate in plain.overloads() and not getattr(plain, candidate)._schema.is_mutable:  # type: ignore[union-attr]
            return getattr(plain, candidate), args, kwargs
    raise NotRecorded(f"{func} has no form that gives a new value")


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _lies_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    mine, its = (one.shape, one.stride(), one.storage_offset()), (other.shape, other.stride(), other.storage_offset())
    return mine == its and one.dtype == other.dtype
