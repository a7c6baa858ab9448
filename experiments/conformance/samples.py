"""Torch's OpInfo database as calls: for each entry a few samples, one of them with its tensors strided and offset."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy
import torch
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_leaves, tree_map

import bridge

FROM = 64
"""Samples of an entry that are looked at; the chosen ones are the first and any others of them."""


def _unseeded(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return op(*args, **kwargs)


# Entries that draw random numbers set a seed inside the call, which a compiler meets while tracing and not when the
# compiled program runs. The seed is set around the call instead.
common_methods_invocations.wrapper_set_seed = _unseeded  # type: ignore[attr-defined]

ENTRIES: dict[str, OpInfo] = {info.full_name: info for info in op_db}
"""The entries by name and variant."""


@dataclass(frozen=True)
class Sample:
    """One call of an entry. `run` takes the arguments; `name` says which sample it is."""

    name: str
    run: Callable[..., Any]
    arguments: tuple[Any, tuple[Any, ...], dict[str, Any]]

    def fresh(self) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """The arguments with tensors of their own, lying in memory as the given ones do."""
        return tree_map(copied, self.arguments)

    def compiled(self, arguments: Any, symbolic: bool) -> tuple[Any, Callable[..., Any]]:
        """What `bridge.compile` makes of the call, to be inspected, and what to call with the arguments."""
        function = bridge.compile(self.run, dynamic=symbolic)
        return function, function


def names(dtype: torch.dtype) -> list[str]:
    """The entries that torch's CPU kernels support in a type.

    Not those in place: what is drawn into a strided tensor is something else already where AOTAutograd alone runs it.
    """
    found = {name: info for name, info in ENTRIES.items() if dtype in info.supported_dtypes("cpu")}
    return [name for name, info in found.items() if info.variant_test_name != "in_place"]


def has_gradient(name: str, dtype: torch.dtype) -> bool:
    info = ENTRIES[name]
    return info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")


def samples(name: str, dtype: torch.dtype, count: int) -> Iterator[Sample]:
    """So many of torch's samples, the same at each run, and the smallest of them strided and offset."""
    seeded()
    info = ENTRIES[name]
    found = list(islice(info.sample_inputs("cpu", dtype, requires_grad=has_gradient(name, dtype)), FROM))
    others = range(1, len(found))
    chosen = [0, *sorted(random.Random(name).sample(others, min(count - 1, len(others))))] if found else []
    for index in chosen:
        yield _sample(f"sample {index}", info, found[index])
    dense = [index for index in chosen if _is_dense(found[index])]
    if dense:
        index = min(dense, key=lambda i: (not _elements(found[i]), _elements(found[i])))
        yield _sample(f"sample {index} strided", info, found[index].noncontiguous())


def seeded() -> None:
    """Let all that samples are made with begin anew."""
    for seed in (torch.manual_seed, random.seed, numpy.random.seed):
        seed(0)


def _sample(name: str, info: OpInfo, sample: SampleInput) -> Sample:
    op, process = info.get_op(), sample.output_process_fn_grad

    def run(input: Any, args: Any, kwargs: Any) -> Any:
        return process(op(input, *args, **kwargs))

    return Sample(name, run, (sample.input, tuple(sample.args), dict(sample.kwargs)))


def _is_dense(sample: SampleInput) -> bool:
    return all(t.layout == torch.strided for t in _tensors(sample))


def _elements(sample: SampleInput) -> int:
    return sum(tensor.numel() for tensor in _tensors(sample))


def _tensors(sample: SampleInput) -> list[torch.Tensor]:
    leaves = tree_leaves((sample.input, sample.args, sample.kwargs))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def copied(tensor: Any) -> Any:
    """A leaf of the same strides and offset in a storage of its own. What is no tensor stays as it is."""
    if not isinstance(tensor, torch.Tensor):
        return tensor
    if tensor.layout != torch.strided:
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)
    storage = tensor.detach().untyped_storage().clone()
    made = torch.empty(0, dtype=tensor.dtype).set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
    return made.requires_grad_(tensor.requires_grad)
