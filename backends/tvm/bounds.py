"""What a graph is given has to hold, or torch raises: indices lie within bounds, no divisor is zero, values are enough.

Kernels read nothing that is not there. That an index is wrong is found by a kernel of its own, which looks at the
index tensor alone, before any other reads by it. Only integers that come from outside are looked at, and in the forward
alone: positions that a graph computes from floats (of a maximum, of a sort) are right by construction, and a backward
reads where its forward did. A zero among the integers that others are divided by is found in the same way, wherever
they come from; kernels divide by something else there. So is a mask that holds more often than there are values.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from bridge.ir.joint import Graph, Phase, Role
from bridge.ir.nodes import op_name
from bridge.ir.provenance import source_line
from bridge.ir.schema import call_arguments
from bridge.ir.shapes import is_size, positive

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

    @property
    def error(self) -> Exception:
        allowed = f"[{self.low}, {self.high})"
        return IndexError(f"index out of range: {op_name(self.node)} takes {allowed}{at_line(self.node)}")


@dataclass(frozen=True)
class Divisor:
    """The integers `index`, or a number that is read or a size, must not hold a zero in the type of the division."""

    node: fx.Node
    index: fx.Node

    @property
    def dtype(self) -> torch.dtype:
        """The type in which is divided: a divisor without dimensions is made that of what it divides."""
        return self.node.meta["val"].dtype

    @property
    def key(self) -> tuple[Any, ...]:
        return self.index, self.dtype

    @property
    def error(self) -> Exception:
        return RuntimeError(f"ZeroDivisionError: {op_name(self.node)} divides integers by zero{at_line(self.node)}")


@dataclass(frozen=True)
class Source:
    """`count` values have to be enough for the mask `index`, spread to `shape`."""

    node: fx.Node
    index: fx.Node
    shape: tuple[Any, ...]
    count: Any

    @property
    def key(self) -> tuple[Any, ...]:
        return self.index, str(self.shape), str(self.count)

    @property
    def error(self) -> Exception:
        return RuntimeError(
            f"shape mismatch: {op_name(self.node)} has {self.count} values for a mask that holds more often"
            f"{at_line(self.node)}"
        )


Check = Bound | Divisor | Source
"""Something that `index` has to hold before `node` runs."""


def checks(graph: Graph) -> dict[fx.Node, list[Check]]:
    """What is to be looked at before a node, by the node; each index tensor once for the same bounds."""
    if graph.device.type != "cpu":
        return {}
    found: dict[fx.Node, list[Check]] = {}
    known: set[tuple[Any, ...]] = set()
    given = (*_bounds(graph), *_sources(graph)) if graph.phase is not Phase.BACKWARD else ()
    for check in (*given, *_divisors(graph)):
        if check.key not in known:
            known.add(check.key)
            found.setdefault(check.node, []).append(check)
    return found


def _bounds(graph: Graph) -> Iterator[Bound]:
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    given = {node for node, role in zip(placeholders, graph.inputs, strict=True) if role is Role.INPUT}
    made: dict[fx.Node, bool] = {}
    for node in graph.nodes:
        yield from (bound for bound in _bounds_of(node) if _made_of(bound.index, given, made))


def _sources(graph: Graph) -> Iterator[Source]:
    for node in graph.nodes:
        if node.target is aten.masked_scatter.default:
            given, result = call_arguments(node), node.meta["val"]
            count = given["source"].meta["val"].numel()
            if not statically_known_true(count >= result.numel()):
                yield Source(node, given["mask"], tuple(result.shape), count)


def _divisors(graph: Graph) -> Iterator[Divisor]:
    for node in graph.nodes:
        if node.target in DIVIDING and not _gives_floats(node):
            divisor = call_arguments(node)["other"]
            if not isinstance(divisor, fx.Node) or is_zero(node.meta["val"].numel()):
                continue
            if not (is_size(divisor) and statically_known_true(divisor.meta["val"] > 0) and _is_wide(node)):
                yield Divisor(node, divisor)


def _is_wide(node: fx.Node) -> bool:
    """Whether any number that is no zero stays so in the type of a division."""
    return node.meta["val"].dtype == torch.int64


def _gives_floats(node: fx.Node) -> bool:
    """Whether a division gives floats, which may be divided by zero."""
    return node.meta["val"].is_floating_point()


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


DIVIDING = frozenset(
    {
        aten.div.Scalar_mode,
        aten.div.Tensor_mode,
        aten.floor_divide.Scalar,
        aten.floor_divide.default,
        aten.fmod.Scalar,
        aten.fmod.Tensor,
        aten.remainder.Scalar,
        aten.remainder.Scalar_Tensor,
        aten.remainder.Tensor,
    }
)
"""Overloads that divide integers by a tensor of them, or by a number that is not known before it runs."""


def checker(check: Check) -> Callable[[torch.Tensor], None]:
    """Raises for what a kernel found, read from memory without a call of ATen's."""
    error = check.error

    def look(found: torch.Tensor) -> None:
        if ctypes.c_int32.from_address(found.data_ptr()).value == 1:
            raise type(error)(*error.args)

    return look


def at_line(node: fx.Node) -> str:
    """The user's line behind a node as the end of a message; "" where it is not known."""
    line = source_line(node)
    return f", at {line}" if line else ""


def sized(node: fx.Node) -> Callable[[torch.Tensor, Mapping[int, int]], None]:
    """Raises RuntimeError where values decided on other sizes than those that the program is written for."""
    line = at_line(node)

    def check(result: torch.Tensor, expected: Mapping[int, int]) -> None:
        for dim, size in expected.items():
            if result.shape[dim] != size:
                found = f"dimension {dim} is of size {result.shape[dim]}"
                raise RuntimeError(f"{op_name(node)}: {found}, and what reads it takes {size} alone{line}")

    return check


def counter(node: fx.Node) -> Callable[[torch.Tensor, int], None]:
    """Raises RuntimeError, as eager does, where a mask holds in more or fewer places than there are values for."""
    line = at_line(node)

    def check(places: torch.Tensor, values: int) -> None:
        if places.shape[0] != values:
            raise RuntimeError(f"shape mismatch: {values} values for a mask that holds {places.shape[0]} times{line}")

    return check
