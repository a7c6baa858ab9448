"""Call the user's program and leave no trace of it: what it holds is put back as it was."""

from __future__ import annotations

import functools
import inspect
import random
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from bridge.ir.trees import tree_leaves

CONTAINERS = (list, dict, set, deque, OrderedDict, defaultdict)
Undo = Callable[[], object]


@contextmanager
def unchanged(subject: Any, *arguments: Any) -> Iterator[None]:
    """Put back what is done herein to a module or a function, to the tensors it is given, and to random numbers.

    Of a module: parameters, buffers and other attributes, with what the lists, mappings and sets among them hold. Of a
    function: the modules and tensors that it is bound to or encloses. What runs herein must not write gradients.
    """
    held = [*_held_by(subject), *tree_leaves(arguments)]
    modules = {id(m): m for thing in held if isinstance(thing, nn.Module) for m in thing.modules()}
    attributes = [value for module in modules.values() for value in vars(module).values()]
    containers = {id(value): value for value in attributes if type(value) in CONTAINERS}
    inside = [item for one in containers.values() for item in (one.values() if isinstance(one, dict) else one)]
    tensors = {id(t): t for t in (*held, *attributes, *inside) if isinstance(t, torch.Tensor)}
    undo = [_generators(), *map(_tensor, tensors.values()), *map(_container, containers.values())]
    undo += [_attributes(module) for module in modules.values()]
    try:
        yield
    finally:
        for put_back in reversed(undo):
            put_back()


def _held_by(subject: Any) -> list[Any]:
    """The modules and tensors that a subject is, is bound to, or encloses."""
    if isinstance(subject, nn.Module | torch.Tensor):
        return [subject]
    if isinstance(subject, functools.partial):
        inside = tree_leaves((subject.args, subject.keywords))
        return [*_held_by(subject.func), *(found for one in inside for found in _held_by(one))]
    if inspect.ismethod(subject):
        return [*_held_by(subject.__self__), *_held_by(subject.__func__)]
    if inspect.isfunction(subject):
        named = [subject.__globals__[name] for name in subject.__code__.co_names if name in subject.__globals__]
        cells = [cell.cell_contents for cell in subject.__closure__ or () if _is_filled(cell)]
        return [one for one in tree_leaves([*named, *cells]) if isinstance(one, nn.Module | torch.Tensor)]
    return []


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _generators() -> Undo:
    """The generators that a model draws from without being given one: torch's, Python's and NumPy's."""
    numpy = sys.modules.get("numpy")
    state, python = torch.get_rng_state(), random.getstate()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    drawn = numpy.random.get_state() if numpy is not None else None

    def put_back() -> None:
        torch.set_rng_state(state)
        random.setstate(python)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
        if numpy is not None:
            numpy.random.set_state(drawn)

    return put_back


def _tensor(tensor: torch.Tensor) -> Undo:
    """The bits of a tensor. One that did not change is not written to: who holds its graph would notice."""
    if tensor.layout is not torch.strided or tensor.device.type == "meta" or tensor.is_quantized:
        return lambda: None
    data = tensor.data
    saved = data.clone()
    return lambda: None if _same(data, saved) else data.copy_(saved)


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(_bits(one), _bits(other))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.resolve_conj().resolve_neg().contiguous().flatten().view(torch.uint8)


def _container(container: Any) -> Undo:
    saved = container.copy()

    def put_back() -> None:
        container.clear()
        container.extend(saved) if isinstance(container, list | deque) else container.update(saved)

    return put_back


def _attributes(module: nn.Module) -> Undo:
    saved = dict(vars(module))

    def put_back() -> None:
        vars(module).clear()
        vars(module).update(saved)

    return put_back
