"""Write an optimizer's own step into a graph: its `step` is run on fake tensors, and what it does is recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from bridge.frontends.torch.adapters.symbols import Symbols
from bridge.frontends.torch.numbers import Numbers, Plain, folded
from bridge.frontends.torch.recorder import NotRecorded, Recorder

Path = tuple[int, str, int]
"""A number of an optimizer: the group, the key in it, and the place in a tuple or a list, -1 where it is none."""

PLAIN_LOOP = {"foreach": False, "fused": False}
"""The optimizer's options for one parameter after the other, which a graph can hold and kernels fuse again."""


class StateMissing(Exception):
    """The optimizer makes its state in this step; the next one can be recorded."""


@dataclass(frozen=True)
class Number:
    """A number that the graph reads as a 0-d tensor of float64. owner, key: where it stands now."""

    symbol: Any
    node: fx.Node
    get: Callable[[], float]


@dataclass(frozen=True)
class Update:
    """What an optimizer's step does. results: each tensor that it changes, with the node of the new value.

    gradients: for each parameter what the step leaves in its gradient. numbers: what it reads beside tensors.
    counted: (mapping, key, expression) of Python numbers that it changes. assumed: what has to be true of the numbers.
    """

    results: list[tuple[torch.Tensor, fx.Node]]
    gradients: list[tuple[torch.Tensor, fx.Node]]
    numbers: list[Number]
    counted: list[tuple[Callable[[], dict[Any, Any]], Any, Any]] = field(default_factory=list)
    assumed: Sequence[Any] = ()

    def still_true(self, values: Mapping[Any, float]) -> bool:
        """Whether Python would take the same branches with these values of the symbols."""
        return all(bool(fact.subs(values)) for fact in self.assumed)

    def count(self, values: Mapping[Any, float]) -> None:
        """Set the Python numbers of the state to what the step makes of them."""
        algebra = Plain(values)
        for mapping, key, expr in self.counted:
            held = mapping()
            held[key] = type(held[key])(folded(expr, algebra))


def record_update(
    optimizer: torch.optim.Optimizer,
    gradients: Sequence[tuple[torch.Tensor, fx.Node]],
    graph: fx.Graph,
    place: Callable[[torch.Tensor | None, str], fx.Node],
    varying: frozenset[Path],
    before: Callable[[list[torch.Tensor]], object] | None,
    on_tensors: bool = False,
) -> Update:
    """Append to `graph` what `optimizer.step()` does with these gradients of its parameters.

    place: an input of the graph for a tensor, or for a number (None), under a name. varying: the numbers that become
    inputs; all others are constants. before: is called with the parameters before the step, as to clip gradients.
    on_tensors: have torch's optimizers compute with their counters as tensors, as under a compiler, rather than read
    them as numbers and take branches by them. Raises NotRecorded, or StateMissing.
    """
    return _Recording(optimizer, gradients, graph, place, varying, on_tensors).run(before)


class _Recording:
    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        gradients: Sequence[tuple[torch.Tensor, fx.Node]],
        graph: fx.Graph,
        place: Callable[[torch.Tensor | None, str], fx.Node],
        varying: frozenset[Path],
        on_tensors: bool,
    ) -> None:
        self._optimizer = optimizer
        self._on_tensors = on_tensors
        self._place = place
        self._varying = varying
        self._symbols = Symbols()
        self._device = next((p.device for p, _ in gradients), torch.device("cpu"))
        self._numbers = Numbers(graph, self._symbols, self._device)
        self._recorder = Recorder(graph, self._numbers)
        self._fakes: dict[torch.Tensor, torch.Tensor] = {}
        self._wide: dict[torch.Tensor, torch.Tensor] = {}
        self._gradients = dict(gradients)
        self._inputs: list[Number] = []

    def run(self, before: Callable[[list[torch.Tensor]], object] | None) -> Update:
        copy = self._copied()
        given = [fake for real, fake in self._fakes.items() if real in self._gradients]
        held = {real: self._recorder.node_of(fake) for real, fake in self._fakes.items()}
        with self._symbols.mode, torch.no_grad(), self._recorder:
            self._stepped(copy, lambda: before(given) if before is not None else None)
        counted = self._counted(copy)
        nodes = [(real, self._recorder.node_of(fake)) for real, fake in self._fakes.items()]
        return Update(
            results=[(real, node) for real, node in nodes if node is not held[real]],
            gradients=[(real, self._left(self._fakes[real])) for real in self._gradients],
            numbers=self._inputs,
            counted=counted,
            assumed=self._symbols.assumed,
        )

    def _stepped(self, copy: torch.optim.Optimizer, before: Callable[[], object]) -> None:
        """Run the step on fake tensors. What goes wrong there says only that it cannot be recorded."""
        known = {key: set(state) for key, state in copy.state.items()}
        try:
            before()
            with as_compiled() if self._on_tensors else nullcontext():
                _plain_step(type(copy))(copy)
        except Exception as error:  # a user's code, which nobody wrote for fake tensors
            if {key: set(state) for key, state in copy.state.items()} != known:
                raise StateMissing from error
            reason = str(error) if isinstance(error, NotRecorded) else f"{type(error).__name__}: {error}"
            raise NotRecorded(reason.split("\n")[0]) from error
        if {key: set(state) for key, state in copy.state.items()} != known:
            raise StateMissing

    def _left(self, fake: torch.Tensor) -> fx.Node:
        if fake.grad is None:
            raise NotRecorded("the step takes a gradient away")
        return self._recorder.node_of(fake.grad)

    def _copied(self) -> torch.optim.Optimizer:
        """An optimizer of the same class whose parameters, gradients and states are fake."""
        copy = object.__new__(type(self._optimizer))
        vars(copy).update(vars(self._optimizer))
        vars(copy).pop("step", None)  # a scheduler's, which counts the steps of the user's optimizer
        copy.param_groups = [self._group(n, group) for n, group in enumerate(self._optimizer.param_groups)]
        copy.state = defaultdict(dict)
        for key, state in self._optimizer.state.items():
            if key not in self._fakes:
                raise NotRecorded("the optimizer has a state that belongs to no parameter")
            number = len(copy.state)
            labels = {name: f"state_{number}_{name}" for name in state}
            copy.state[self._fakes[key]] = {name: self._state(key, state, name, labels[name]) for name in state}
        return copy

    def _group(self, number: int, group: dict[str, Any]) -> dict[str, Any]:
        made = {key: self._entry((number, key, -1), group, value) for key, value in group.items() if key != "params"}
        made["params"] = [self._parameter(p) for p in group["params"]]
        plain = {**PLAIN_LOOP, "capturable": True} if self._on_tensors else PLAIN_LOOP
        return {**made, **{key: value for key, value in plain.items() if key in group}}

    def _entry(self, path: Path, owner: Any, value: Any) -> Any:
        group, key, _ = path
        if isinstance(value, torch.Tensor):
            return self._fake(value, key)
        if isinstance(value, tuple | list):
            return type(value)([self._entry((group, key, n), owner, part) for n, part in enumerate(value)])
        if path not in self._varying:
            return value
        return self._number(value, f"{key}_{group}", lambda: _at(self._optimizer.param_groups, path))

    def _number(self, value: float, name: str, get: Callable[[], float]) -> Any:
        symbol = self._symbols.number(value, f"{name}_{len(self._inputs)}")
        node = self._place(None, name)
        self._numbers.enter(symbol, node)
        self._inputs.append(Number(symbol.node.expr, node, get))
        return symbol

    def _parameter(self, real: torch.Tensor) -> torch.Tensor:
        fake = self._fake(real, "parameter").requires_grad_(real.requires_grad)
        if real in self._gradients:
            node = self._gradients[real]
            fake.grad = self._symbols.fake(node.meta["val"])
            self._recorder.know(fake.grad, node)
        return fake

    def _state(self, parameter: torch.Tensor, state: dict[str, Any], name: str, label: str) -> Any:
        value = state[name]
        if isinstance(value, torch.Tensor):
            fake = self._fake(value, label)
            counts = self._on_tensors and not value.dim() and parameter.dim() and value.dtype == torch.float32
            return self._widened(value, fake) if counts else fake
        if type(value) in (int, float):
            return self._number(value, label, lambda: self._optimizer.state[parameter][name])
        return value

    def _widened(self, real: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
        """A counter in float64, as Python computes with the number that it reads of it."""
        with self._symbols.mode, torch.no_grad(), self._recorder:
            self._wide[real] = fake.double()
        return self._wide[real]

    def _fake(self, real: torch.Tensor, name: str) -> torch.Tensor:
        if real.device != self._device:
            raise NotRecorded("the optimizer's tensors lie on several devices")
        if real not in self._fakes:
            self._fakes[real] = self._symbols.fake(real)
            self._recorder.know(self._fakes[real], self._place(real, name))
        return self._fakes[real]

    def _counted(self, copy: torch.optim.Optimizer) -> list[tuple[Callable[[], dict[Any, Any]], Any, Any]]:
        """The Python numbers that the step changed. A state that was replaced is written over the old one."""
        found: list[Any] = []
        real_of = {fake: real for real, fake in self._fakes.items()}
        for fake, state in copy.state.items():
            for name, value in state.items():
                self._compare(real_of, (lambda fake=fake: self._optimizer.state[real_of[fake]]), name, value, found)
        for n, group in enumerate(copy.param_groups):
            for name, value in group.items():
                if name not in (*PLAIN_LOOP, "capturable", "params") and not isinstance(value, tuple | list):
                    self._compare(real_of, (lambda n=n: self._optimizer.param_groups[n]), name, value, found)
        return found

    def _compare(
        self,
        real_of: Mapping[Any, torch.Tensor],
        owner: Callable[[], dict[Any, Any]],
        name: str,
        value: Any,
        found: list,
    ) -> None:
        before = owner()[name]
        if isinstance(before, torch.Tensor):
            fake = self._fakes[before]
            if value is not fake:
                self._rebind(fake, value, fake.dtype if before not in self._wide else torch.float64)
        elif isinstance(value, torch.SymInt | torch.SymFloat):
            if not value.node.expr.is_Symbol:
                found.append((owner, name, value.node.expr))
        elif value is not before and value != before:
            raise NotRecorded(f"the step changes {name!r} from {before!r} to {value!r}")

    def _rebind(self, fake: torch.Tensor, value: Any, dtype: torch.dtype) -> None:
        """A state that the step replaces by another tensor: the new value goes where the old one lies."""
        if not isinstance(value, torch.Tensor) or value.shape != fake.shape or value.dtype != dtype:
            raise NotRecorded("the step replaces a state by something of another kind")
        with self._symbols.mode, torch.no_grad(), self._recorder:
            fake.copy_(value)


def bring_counts(optimizer: torch.optim.Optimizer) -> None:
    """Bring the numbers that an optimizer keeps on the CPU, beside parameters on a GPU, to where programs can count."""
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and value.dim() == 0 and value.device.type == "cpu":
                state[name] = value.to(parameter.device)


def _at(groups: Sequence[dict[str, Any]], path: Path) -> float:
    number, key, place = path
    value = groups[number][key]
    return value if place < 0 else value[place]


def numbers_of(optimizer: torch.optim.Optimizer) -> dict[Path, float]:
    """The floats among the options of an optimizer's groups."""
    found: dict[Path, float] = {}
    for n, group in enumerate(optimizer.param_groups):
        for key, value in group.items():
            parts = enumerate(value) if isinstance(value, tuple | list) and key != "params" else [(-1, value)]
            found.update({(n, key, place): part for place, part in parts if type(part) is float})
    return found


@contextmanager
def as_compiled() -> Iterator[None]:
    """Code that asks whether a compiler is at work is told so."""
    asked = torch.compiler.is_compiling
    torch.compiler.is_compiling = lambda: True
    try:
        yield
    finally:
        torch.compiler.is_compiling = asked


def _plain_step(kind: type) -> Callable[..., Any]:
    """The `step` of a class without the wrapper that torch puts around it for its profiler and for hooks."""
    step: Any = kind.step  # type: ignore[attr-defined]
    return step.__wrapped__ if getattr(step, "hooked", False) else step


__all__ = ["NotRecorded", "Path", "StateMissing", "Update", "bring_counts", "numbers_of", "record_update"]
