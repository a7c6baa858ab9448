"""A program of a training step, bound to the user's model and optimizer: whether it may run, and running it."""

from __future__ import annotations

import operator
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from bridge.frontends.torch.step import StepGraph
from bridge.frontends.torch.update import numbers_of
from bridge.frontends.torch.whole import Whole
from bridge.ir.compiled import CompiledGraph
from bridge.ir.memory import overlapping
from bridge.runtime.conditions import Check, together
from bridge.runtime.guard import Layout, Watch, ambient, watched_lists, watched_mappings
from bridge.runtime.hooks import hooks_of


class Modules:
    """The modules that a step reads, and what they were when it was captured; with all hooks, the optimizer's too."""

    def __init__(self, modules: Sequence[nn.Module], optimizer: torch.optim.Optimizer) -> None:
        self._modules = modules
        self._optimizer = optimizer
        self._watch = Watch(watched_mappings(modules), watched_lists(modules))
        self._registered = RemovableHandle.next_id
        self._hooks, self._present = self._seen()

    def _seen(self) -> tuple[Any, list[Any]]:
        found = [hooks_of(module) for module in self._modules]
        others = [h for p in self.parameters for h in (p._backward_hooks, p._post_accumulate_grad_hooks) if h]  # type: ignore[attr-defined]
        others += [h for h in hooks_of_step(self._optimizer) if h]
        present = [held for _, present in found for held in present] + [(held, len(held)) for held in others]
        return [*(hooks for hooks, _ in found), *(tuple(held.values()) for held in others)], present

    def same(self) -> bool:
        """Whether attributes, parameters, parts and hooks are what they were."""
        if self._registered != RemovableHandle.next_id or any(len(held) != n for held, n in self._present):
            hooks, self._present = self._seen()
            if hooks != self._hooks:
                return False
            self._registered = RemovableHandle.next_id
        return self._watch.same() or self._watch.alike()

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Those of all the modules."""
        return [parameter for module in self._modules for parameter in module.parameters()]

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Parameters, buffers, and tensors that are plain attributes."""
        parts = dict.fromkeys(part for module in self._modules for part in module.modules())
        held = [value for part in parts for value in vars(part).values() if isinstance(value, torch.Tensor)]
        return [*held, *self.parameters, *(buffer for module in self._modules for buffer in module.buffers())]


def hooks_of_step(optimizer: torch.optim.Optimizer) -> tuple[Any, Any]:
    """What is called before and after `optimizer.step()`."""
    return optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks


class OptimizerState:
    """An optimizer's groups and states: what has to stay, tensors that may be replaced, numbers that may change."""

    def __init__(self, optimizer: torch.optim.Optimizer, graph: StepGraph) -> None:
        self._optimizer = optimizer
        self._update = graph.update
        assert self._update is not None
        self._varying = graph.varying
        self._counted = {key for _, key, _ in self._update.counted}
        device = next((s.held.device for s in graph.sources if s.held is not None), None)
        self.numbers = [torch.zeros((), dtype=torch.float64, device=device) for _ in self._update.numbers]
        self._values: dict[Any, float] = {}
        self._remember()
        self._groups_said, self._states_said = self._groups(), self._states()
        self._set_numbers()

    def _remember(self) -> None:
        optimizer = self._optimizer
        self._held = optimizer.state, optimizer.param_groups
        self._group_watch = Watch(optimizer.param_groups, [group["params"] for group in optimizer.param_groups])
        self._state_watch = Watch(optimizer.state.values())
        values = [value for group in optimizer.param_groups for value in group.values()]
        self._group_tensors = [value for value in values if isinstance(value, torch.Tensor)]

    def same(self) -> bool | None:
        """Whether the program still fits: True; None where it does with other tensors in the state; False."""
        held = self._held[0] is self._optimizer.state and self._held[1] is self._optimizer.param_groups
        groups = held and len(self._held[1]) == len(self._groups_said) - 1 and self._group_watch.same()
        states = held and len(self._held[0]) == len(self._states_said) and self._state_watch.same()
        if groups and states:
            return True
        if not groups and self._groups() != self._groups_said:
            return False
        if not states and self._states() != self._states_said:
            return False
        known = self._group_tensors
        self._remember()
        if not self._set_numbers():
            return False
        return True if states and all(map(operator.is_, known, self._group_tensors)) else None

    def _groups(self) -> list[Any]:
        """What the groups say but for the numbers that may change."""
        said: list[Any] = [{p: v for p, v in numbers_of(self._optimizer).items() if p not in self._varying}]
        for group in self._optimizer.param_groups:
            plain = {k: _said(v) for k, v in group.items() if k != "params" and k not in self._counted}
            said.append((list(map(id, group["params"])), {k: v for k, v in plain.items() if type(v) is not float}))
        return said

    def _states(self) -> list[Any]:
        states = self._optimizer.state.items()
        return [(id(p), {k: None if k in self._counted else _said(v) for k, v in s.items()}) for p, s in states]

    def _set_numbers(self) -> bool:
        """Put the numbers as they are now into their tensors. False where Python would take another branch for them."""
        assert self._update is not None
        values = {number.symbol: number.get() for number in self._update.numbers}
        if values != self._values:
            if self._values and not self._update.still_true(values):
                return False
            self._values = values
            for tensor, value in zip(self.numbers, values.values()):
                tensor.fill_(value)
        return True

    def stepped(self) -> None:
        """Count Python numbers of the state up, after the program has run."""
        if self._counted:
            assert self._update is not None
            self._update.count({number.symbol: number.get() for number in self._update.numbers})
            self._remember()
            self._set_numbers()


def _said(value: Any) -> Any:
    """A value as it is compared: numbers in tuples are compared elsewhere, tensors by the layout.

    Tensors in tuples have to be the same ones: nobody looks for them again where they stood.
    """
    if isinstance(value, torch.Tensor):
        return torch.Tensor
    if isinstance(value, tuple | list):
        parts = [id(part) if isinstance(part, torch.Tensor) else _said(part) for part in value]
        return tuple(None if type(part) is float else part for part in parts)
    return value


class BoundProgram:
    """A compiled step with the tensors that it stands on."""

    def __init__(
        self,
        compiled: CompiledGraph,
        graph: StepGraph,
        whole: Whole,
        leaves: Sequence[torch.Tensor],
        structure: Any,
        modules: Modules,
        optimizer: torch.optim.Optimizer,
        given: tuple[Any, ...],
    ) -> None:
        self.graph = graph
        self._run = compiled.run
        self._structure = structure
        self._modules = modules
        self._optimizer = OptimizerState(optimizer, graph) if graph.update else None
        self._paths = _paths(optimizer)
        self._ambient = ambient()
        self._whole = whole
        self._bind()
        symbolic = any(source.dim is not None for source in graph.sources)
        alone = list(dict.fromkeys(leaves))
        self._layout = Layout([*alone, *self._tensors], frozenset(range(len(alone))) if symbolic else frozenset())
        self._ask = self._asked(unwatched(whole, given), given, symbolic)
        self._twice = _repeated(leaves)
        self._alone = len(alone)
        self._left = self._leaving(optimizer)
        self._changed = {
            n for at in graph.graph.targets if at is not None and (n := graph.sources[at].leaf) is not None
        }
        self._overlap = overlapping(leaves, self._changed)

    def _asked(self, texts: list[str], given: tuple[Any, ...], symbolic: bool) -> Check | None:
        """What is left to check of Dynamo's guards: those that nobody else watches, or all where sizes are symbols."""
        if not symbolic and not texts:
            return None
        mine = together(texts, self._whole.locals(*given), self._whole.globals) if not symbolic else None
        return mine or self._whole.frame.check

    def _bind(self) -> None:
        """Look up the tensors that stay, and where the others go."""
        sources = list(enumerate(self.graph.sources))
        numbers = self._optimizer.numbers if self._optimizer else []
        self._fixed: list[Any] = [s.held if s.number is None else numbers[s.number] for _, s in sources]
        for at, source in sources:
            getter = self._paths.get(id(source.held)) if source.held is not None else None
            if getter is not None:
                self._fixed[at] = getter()
        self._leaf_at = [(at, s.leaf) for at, s in sources if s.leaf is not None and s.dim is None]
        self._size_at = [(at, s.leaf, s.dim) for at, s in sources if s.dim is not None]
        self._gradient_at = [(at, s.gradient) for at, s in sources if s.gradient is not None]
        self._tensors = [t for (_, s), t in zip(sources, self._fixed) if s.held is not None]
        self._memory = {t.untyped_storage().data_ptr() for t in self._tensors}

    def _leaving(self, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
        """The parameters whose gradients go before a run that leaves others: all but those that are added to."""
        if self.graph.update is not None and not self.graph.kept:
            return []
        carried = {id(source.gradient) for source in self.graph.sources if source.gradient is not None}
        parameters = [p for group in optimizer.param_groups for p in group["params"] if id(p) not in carried]
        return list(dict.fromkeys([*self.graph.kept, *parameters]))

    def holds(self, leaves: Sequence[torch.Tensor], structure: Any, given: Callable[[], tuple[Any, ...]]) -> bool:
        """Whether the program may run on a call's tensors, everything else being as it is now."""
        if structure != self._structure or ambient() != self._ambient or not self._modules.same():
            return False
        if self._optimizer is not None:
            same = self._optimizer.same()
            if not same:
                if same is False:
                    return False
                self._bind()
        if self._twice and _repeated(leaves) != self._twice:
            return False
        alone = dict.fromkeys(leaves) if self._twice else leaves  # the layout knows none that comes twice
        if len(alone) != self._alone or not self._layout.holds(*alone, *self._tensors):
            return False
        if any(leaf.untyped_storage().data_ptr() in self._memory for leaf in leaves):
            return False
        if self._changed and overlapping(leaves, self._changed) != self._overlap:
            return False
        return self._ask is None or self._ask(self._whole.locals(*given()))

    def run(self, leaves: Sequence[torch.Tensor]) -> torch.Tensor:
        """One step. Gradients that are kept go where they belong. Gives the loss."""
        args = self._fixed.copy()
        for at, leaf in self._leaf_at:
            args[at] = leaves[leaf]
        for at, leaf, dim in self._size_at:
            args[at] = leaves[leaf].shape[dim]  # type: ignore[index]
        for at, parameter in self._gradient_at:
            args[at] = parameter.grad
        carried = [(parameter, parameter.grad) for _, parameter in self._gradient_at]
        for parameter in self._left:
            parameter.grad = None  # its memory may be where the new one goes
        try:
            with torch.no_grad():
                loss, *gradients = self._run(args)
        except BaseException:
            for parameter, gradient in carried:
                parameter.grad = gradient
            raise
        for parameter, gradient in zip(self.graph.kept, gradients):
            parameter.grad = gradient
        if self._optimizer is not None:
            self._optimizer.stepped()
        return loss


def _repeated(leaves: Sequence[torch.Tensor]) -> list[int]:
    """For each tensor the first place where it stands; empty where none stands twice."""
    if len(set(map(id, leaves))) == len(leaves):
        return []
    return [next(n for n, other in enumerate(leaves) if other is leaf) for leaf in leaves]


def _paths(optimizer: torch.optim.Optimizer) -> dict[int, Callable[[], torch.Tensor]]:
    """Where to find the tensors of an optimizer's state and groups again, once they were replaced."""
    found: dict[int, Callable[[], torch.Tensor]] = {}
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            if isinstance(value, torch.Tensor):
                found[id(value)] = lambda p=parameter, k=key: optimizer.state[p][k]
    for n, group in enumerate(optimizer.param_groups):
        for key, value in group.items():
            if isinstance(value, torch.Tensor):
                found[id(value)] = lambda n=n, k=key: optimizer.param_groups[n][k]
    return found


CODE = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)
"""What a program text defines, and nobody changes while it runs."""

OWN_ROOTS = ("L['args']", "L['kwargs']", "L['function']")
OWN = re.compile(r"L\['function'\]\.__closure__\[\d+\]\.cell_contents")
"""The model and the loss, which a step is made for."""

SOURCE = re.compile(r"""(?:L|G)\[['"]\w+['"]\][\w.\[\]'"]*""")
IGNORED = re.compile(
    r"^(___check_global_state|___check_torch_function_mode_stack|torch\._functorch|utils_device|hasattr\(|check_tensor\("
    r"|check_no_aliasing|___check_type_id\(G\['__import_torch_dot_|not ___dict_contains\('\w+', [a-z_()]*G\[)"
)
PART = re.compile(r"\.__(code|dict|defaults)__$")
"""What a function or an object is made of, and changes only with it."""

GIVEN = (torch.Tensor, tuple, list, Mapping)
"""What a call is given as, and told by its structure and its layout."""


def unwatched(whole: Whole, given: tuple[Any, ...]) -> list[str]:
    """Dynamo's guards about what only Dynamo watches: values in closures, globals and objects that are no modules."""
    scope = {"L": whole.locals(*given), "G": whole.globals}
    return [g for g in whole.frame.guards if not IGNORED.match(g) and not _is_watched(g, scope)]


def _is_code(source: str, owner: str, held: Any, scope: dict[str, Any]) -> bool:
    """Whether it is what a module or a class defines, and not what an object was given."""
    defined = owner == "G" or isinstance(held, CODE) or owner.startswith("G['__builtins_dict__")
    return defined and isinstance(eval(source, dict(scope)), CODE)


def _is_watched(guard: str, scope: dict[str, Any]) -> bool:
    """Whether a guard is about attributes of modules, or about what the arguments hold, which structure tells."""
    for source in SOURCE.findall(guard):
        source = PART.sub("", source)
        if source in OWN_ROOTS or OWN.fullmatch(source):
            continue
        owner = re.sub(r"(\.\w+|\[[^\[\]]*\])$", "", source)
        try:
            held = eval(owner, dict(scope))
            if source.startswith("L['args']") and isinstance(held, GIVEN):
                continue
            if source.startswith("G[") and _is_code(source, owner, held, scope):
                continue
        except (AttributeError, LookupError, NameError, SyntaxError, TypeError):
            return False
        owner_is_part = isinstance(held, dict) and re.search(r"\._(modules|parameters|buffers)$", owner)
        if not isinstance(held, nn.Module) and not owner_is_part:
            return False
    return True
