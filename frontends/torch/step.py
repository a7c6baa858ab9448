"""One graph for a whole training step: loss, gradients and the optimizer's update of them, written over what was."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from bridge.frontends.torch.update import Path, Update, record_update
from bridge.frontends.torch.whole import NotWhole, Whole
from bridge.ir.joint import Graph, Phase, Role, copied
from bridge.ir.memory import overlapping
from bridge.ir.views import root_of

aten = torch.ops.aten


@dataclass(frozen=True)
class Source:
    """Where an input of the graph comes from at each call: one of these.

    held: a tensor that stays. leaf: the position among the tensors of the call; with `dim`, one of its sizes.
    number: the position among the numbers of the update. gradient: the parameter whose `.grad` it is.
    """

    held: torch.Tensor | None = None
    leaf: int | None = None
    dim: int | None = None
    number: int | None = None
    gradient: torch.Tensor | None = None


@dataclass(frozen=True)
class StepGraph:
    """A step as a graph. Its results are written into inputs, but for the loss and the gradients that are kept.

    sources: for each input. update: what the optimizer does; None where the graph ends with the gradients.
    kept: the parameters whose gradients are returned after the loss, in order. varying: as `Wanted` has it.
    """

    graph: Graph
    sources: tuple[Source, ...]
    update: Update | None
    kept: tuple[torch.Tensor, ...]
    varying: frozenset[Path]


@dataclass(frozen=True)
class Wanted:
    """What a step is to do with its gradients.

    optimizer: whose update follows; None to leave the gradients. parameters: those whose gradients are computed.
    carried: those to whose `.grad` they are added. keep: give the gradients back. before: is called before the update.
    varying: the optimizer's numbers that are inputs. on_tensors: as `record_update` has it.
    """

    optimizer: torch.optim.Optimizer | None
    parameters: Sequence[torch.Tensor]
    carried: frozenset[torch.Tensor] = frozenset()
    keep: bool = False
    before: Callable[[list[torch.Tensor]], object] | None = None
    varying: frozenset[Path] = frozenset()
    on_tensors: bool = False


def write_step(whole: Whole, leaves: Sequence[Any], held: Sequence[torch.Tensor], wanted: Wanted) -> StepGraph:
    """The graph of a step. leaves: what the call was given. held: the tensors that may stand in it as they are.

    Raises NotWhole for a graph that reads something else, or whose tensors share memory; NotRecorded and StateMissing
    for what the optimizer does.
    """
    return _Writer(whole, leaves, held).write(wanted)


class _Writer:
    def __init__(self, whole: Whole, leaves: Sequence[Any], held: Sequence[torch.Tensor]) -> None:
        self._joint = whole.joint
        self._module = copied(whole.joint.module)
        self._graph = self._module.graph
        nodes = list(self._graph.nodes)
        self._placeholders = [node for node in nodes if node.op == "placeholder"]
        self._output = nodes[-1]
        self._results = list(self._output.args[0])  # type: ignore[arg-type]
        self._roles = list(whole.joint.inputs)
        self._names = list(whole.joint.input_names)
        self._leaf_of = {id(leaf): n for n, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)}
        self._held = {id(tensor): tensor for tensor in held}
        self._node_of: dict[int, fx.Node] = {}
        self._into: dict[fx.Node, Any] = {}
        self._seed(Role.TANGENT)
        given = dict(zip(self._placeholders, whole.arguments, strict=True))
        tensors = {node: self._tensor(node, value) for node, value in given.items() if isinstance(value, torch.Tensor)}
        self._mode = next(node.meta["val"].fake_mode for node in tensors)
        self._sources = [tensors.get(node) or self._size(node, tensors) for node in given]

    def write(self, wanted: Wanted) -> StepGraph:
        forward = self._joint.forward_outputs
        for value, at in zip(self._results[:forward], self._joint.targets):
            if at is not None:
                self._into[self._placeholders[at]] = value
        loss = next(v for v, at in zip(self._results, self._joint.targets) if at is None)
        gradients = self._gradients(self._results[forward:], wanted)
        update = None
        if wanted.optimizer is not None:
            with self._graph.inserting_before(self._output):
                update = record_update(
                    wanted.optimizer,
                    gradients,
                    self._graph,
                    self._place,
                    wanted.varying,
                    wanted.before,
                    wanted.on_tensors,
                )
            gradients = update.gradients
            self._into.update((self._node_of[id(real)], node) for real, node in update.results)
        kept = self._kept(gradients, wanted)
        graph = self._finished(loss, [node for _, node in kept], is_step=update is not None)
        self._check_memory(graph.targets)
        return StepGraph(graph, tuple(self._sources), update, tuple(p for p, _ in kept), wanted.varying)

    def _seed(self, role: Role) -> None:
        """The gradient of the loss by itself."""
        at = self._roles.index(role)
        tangent = self._placeholders.pop(at)
        del self._roles[at], self._names[at]
        value = tangent.meta["val"]
        with self._graph.inserting_before(tangent):
            one = self._graph.call_function(
                aten.full.default, (list(value.shape), 1), {"dtype": value.dtype, "device": value.device}
            )
        one.meta = {"val": value}
        tangent.replace_all_uses_with(one)
        self._graph.erase_node(tangent)

    def _tensor(self, node: fx.Node, value: torch.Tensor) -> Source:
        if id(value) in self._leaf_of:
            return Source(leaf=self._leaf_of[id(value)])
        if id(value) not in self._held:
            raise NotWhole("the loss reads a tensor that is neither an input, nor a target, nor the model's")
        self._node_of[id(value)] = node
        return Source(held=self._held[id(value)])

    def _size(self, node: fx.Node, tensors: Mapping[fx.Node, Source]) -> Source:
        """A symbolic size, by an input that has it."""
        wanted = node.meta["val"].node.expr
        for other, source in tensors.items():
            for dim, size in enumerate(other.meta["val"].shape):
                if isinstance(size, torch.SymInt) and size.node.expr == wanted and source.leaf is not None:
                    return Source(leaf=source.leaf, dim=dim)
        raise NotWhole(f"the number {node.name} is no size of an input")

    def _gradients(self, given: Sequence[Any], wanted: Wanted) -> list[tuple[torch.Tensor, fx.Node]]:
        """The gradient of each parameter that has one, with what it is added to."""
        by_node = dict(zip(self._placeholders, given))
        found: list[tuple[torch.Tensor, fx.Node]] = []
        for parameter in wanted.parameters:
            node = self._node_of.get(id(parameter))
            value = by_node.get(node) if node is not None else None
            if isinstance(value, fx.Node) and value.meta["val"].layout is not torch.strided:
                raise NotWhole("a gradient is sparse")
            if isinstance(value, fx.Node):
                found.append((parameter, self._carried(parameter, value) if parameter in wanted.carried else value))
            elif parameter in wanted.carried:
                found.append((parameter, self._before(parameter)))
        return found

    def _before(self, parameter: torch.Tensor) -> fx.Node:
        assert parameter.grad is not None
        node = self._input("gradient", Role.GRADIENT, parameter.grad, Source(gradient=parameter))
        return node

    def _carried(self, parameter: torch.Tensor, value: fx.Node) -> fx.Node:
        before = self._before(parameter)
        with self._graph.inserting_before(self._output):
            node = self._graph.call_function(aten.add.Tensor, (before, value))
        node.meta = {"val": before.meta["val"]}
        return node

    def _kept(
        self, gradients: Sequence[tuple[torch.Tensor, fx.Node]], wanted: Wanted
    ) -> list[tuple[torch.Tensor, fx.Node]]:
        """The gradients that are returned. Those that are added to others are written over them instead."""
        if wanted.optimizer is not None:
            return list(gradients) if wanted.keep else []
        kept = []
        for parameter, node in gradients:
            if parameter in wanted.carried:
                sources = zip(self._placeholders, self._sources)
                self._into[next(p for p, source in sources if source.gradient is parameter)] = node
            else:
                kept.append((parameter, node))
        return kept

    def _place(self, tensor: torch.Tensor | None, name: str) -> fx.Node:
        """An input for a tensor of the optimizer's, or for a number."""
        if tensor is None:
            number = sum(source.number is not None for source in self._sources)
            return self._input(name, Role.STATE, torch.empty(()), Source(number=number))
        if id(tensor) not in self._node_of:
            self._node_of[id(tensor)] = self._input(name, Role.STATE, tensor, Source(held=tensor))
        return self._node_of[id(tensor)]

    def _input(self, name: str, role: Role, like: torch.Tensor, source: Source) -> fx.Node:
        first = next(node for node in self._graph.nodes if node.op != "placeholder")
        with self._graph.inserting_before(first):
            node = self._graph.placeholder(f"{name}_{len(self._placeholders)}")
        with self._mode:
            node.meta["val"] = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
        self._placeholders.append(node)
        self._roles.append(role)
        self._names.append(name)
        self._sources.append(source)
        return node

    def _finished(self, loss: fx.Node, kept: list[fx.Node], is_step: bool) -> Graph:
        written = [(value, node) for node, value in self._into.items() if value is not node]
        with self._graph.inserting_before(self._output):
            results = self._fresh([loss, *kept, *(value for value, _ in written)])
        targets: list[int | None] = [None] * (1 + len(kept))
        targets += [self._placeholders.index(node) for _, node in written]
        self._output.args = (tuple(results),)
        self._output.meta = {}
        self._graph.eliminate_dead_code()
        self._module.recompile()
        outputs = [Role.OUTPUT, *[Role.GRADIENT] * len(kept), *[Role.MUTATED] * len(written)]
        phase = Phase.STEP if is_step else Phase.JOINT
        roles, names = tuple(self._roles), tuple(self._names)
        return Graph(self._joint.name, phase, self._module, roles, tuple(outputs), names, tuple(targets))

    def _check_memory(self, targets: Sequence[int | None]) -> None:
        """A graph takes what it reads for what was there before, whatever it has written elsewhere."""
        held = [(n, source.held) for n, source in enumerate(self._sources) if source.held is not None]
        changed = {position for position, (n, _) in enumerate(held) if n in targets}
        if overlapping([tensor for _, tensor in held], changed):
            raise NotWhole("two tensors of the model's share memory, and one of them is changed")

    def _fresh(self, results: Sequence[Any]) -> list[Any]:
        """Results that lie in memory of their own: what shows an input, or what another result shows, is copied."""
        taken: set[fx.Node] = set()
        made = []
        for value in results:
            root = root_of(value)
            if root.op != "call_function" or root in taken:
                node = self._graph.call_function(aten.clone.default, (value,))
                node.meta = {"val": value.meta["val"]}
                value = root = node
            taken.add(root)
            made.append(value)
        return made
