"""Indices that a graph is given, and between what they have to lie: where one does not, torch raises.

Kernels read nothing that is not there. That an index is wrong is found by a kernel of its own, which looks at the
index tensor alone, before any other reads by it. Only integers that come from outside are looked at, and in the forward
alone: positions that a graph computes from floats (of a maximum, of a sort) are right by construction, and a backward
reads where its forward did.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from bridge.ir.joint import Graph, Phase, Role
from bridge.ir.nodes import op_name
from bridge.ir.provenance import source_line
from bridge.ir.schema import call_arguments
from bridge.ir.shapes import positive

aten = torch.ops.aten

INDEX_TYPES = (torch.int64, torch.int32)
"""The types of indices; a mask is none."""


@dataclass(frozen=True)
class Bound:
    """`index` has to be from `low` up to and without `high`, or to be `besides`. Sizes may be symbols."""

    node: fx.Node
    index: fx.Node
    low: Any
    high: Any
    besides: int | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        return self.index, str(self.low), str(self.high), self.besides


def bounds(graph: Graph) -> dict[fx.Node, list[Bound]]:
    """What is to be looked at before a node, by the node; each index tensor once for the same bounds."""
    if graph.phase is Phase.BACKWARD or graph.device.type != "cpu":
        return {}
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    given = {node for node, role in zip(placeholders, graph.inputs, strict=True) if role is Role.INPUT}
    known: set[tuple[Any, ...]] = set()
    made: dict[fx.Node, bool] = {}
    found: dict[fx.Node, list[Bound]] = {}
    for node in graph.nodes:
        for bound in _bounds_of(node):
            if bound.key not in known and _made_of(bound.index, given, made):
                known.add(bound.key)
                found.setdefault(node, []).append(bound)
    return found


def _bounds_of(node: fx.Node) -> Iterator[Bound]:
    how = INDEXED.get(node.target)
    for bound in how(node, call_arguments(node)) if how else ():
        if _holds_integers(bound.index) and not any(is_zero(size) for size in bound.index.meta["val"].shape):
            yield bound


def is_zero(size: Any) -> bool:
    """Whether a size is known to be none; one that depends on values is not known."""
    return isinstance(size, int) and size == 0


def _made_of(node: fx.Node, given: set[fx.Node], known: dict[fx.Node, bool]) -> bool:
    """Whether an index tensor is one that the graph is given, or computed from integers of such a one."""
    if node not in known:
        known[node] = node in given or any(
            _made_of(source, given, known) for source in node.all_input_nodes if _holds_integers(source)
        )
    return known[node]


def _holds_integers(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in INDEX_TYPES


def _embedding(node: fx.Node, given: Mapping[str, Any]) -> Iterator[Bound]:
    yield Bound(node, given["indices"], 0, given["weight"].meta["val"].shape[0])


def _along(node: fx.Node, given: Mapping[str, Any]) -> Iterator[Bound]:
    """An index into one dimension. A 0-d tensor counts as one of a single element."""
    shape = given["self"].meta["val"].shape or (1,)
    yield Bound(node, given["index"], 0, shape[positive(given["dim"], len(shape))])


def _flat(node: fx.Node, given: Mapping[str, Any]) -> Iterator[Bound]:
    count = given["self"].meta["val"].numel()
    yield Bound(node, given["index"], -count, count)


def _many(node: fx.Node, given: Mapping[str, Any]) -> Iterator[Bound]:
    shape = given["self"].meta["val"].shape
    for dim, index in enumerate(given["indices"]):
        if index is not None and dim < len(shape):
            yield Bound(node, index, -shape[dim], shape[dim])


def _classes(node: fx.Node, given: Mapping[str, Any]) -> Iterator[Bound]:
    shape = given["self"].meta["val"].shape
    yield Bound(node, given["target"], 0, shape[min(1, len(shape) - 1)], given["ignore_index"])


INDEXED: Mapping[Any, Callable[[fx.Node, Mapping[str, Any]], Iterator[Bound]]] = {
    aten.embedding.default: _embedding,
    **dict.fromkeys((aten.take.default, aten.put.default), _flat),
    **dict.fromkeys((aten.index.Tensor, aten.index_put.default), _many),
    **dict.fromkeys((aten.nll_loss_forward.default, aten.nll_loss2d_forward.default), _classes),
    **dict.fromkeys(
        (
            *(aten.gather.default, aten.index_select.default, aten.index_add.default, aten.index_copy.default),
            *(aten.index_reduce.default, aten.scatter.src, aten.scatter.value, aten.scatter_add.default),
            aten.scatter_reduce.two,
        ),
        _along,
    ),
}
"""How an overload indexes."""


def checker(bound: Bound) -> Callable[[torch.Tensor], None]:
    """Raises IndexError for what a kernel found out of bounds, read from memory without a call of ATen's."""
    line = source_line(bound.node)
    allowed = f"[{bound.low}, {bound.high})"
    message = f"index out of range: {op_name(bound.node)} takes {allowed}{f', at {line}' if line else ''}"

    def check(found: torch.Tensor) -> None:
        if ctypes.c_int32.from_address(found.data_ptr()).value == 1:
            raise IndexError(message)

    return check


def counter(node: fx.Node) -> Callable[[torch.Tensor, int], None]:
    """Raises RuntimeError, as eager does, where a mask holds in more or fewer places than there are values for."""
    line = source_line(node)

    def check(places: torch.Tensor, values: int) -> None:
        if places.shape[0] != values:
            where = f", at {line}" if line else ""
            raise RuntimeError(f"shape mismatch: {values} values for a mask that holds {places.shape[0]} times{where}")

    return check
