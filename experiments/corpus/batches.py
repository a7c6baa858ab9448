"""Inputs of the models of the corpus at other batch sizes, put together from several makings with other seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from experiments.corpus.graphs import NODES
from experiments.corpus.registry import MODELS

Inputs = tuple[tuple[Any, ...], dict[str, Any]]
"""Arguments and keyword arguments."""


class Along(NamedTuple):
    """The dimension of an input that grows with the batch, and what each further making adds to its numbers."""

    dim: int = 0
    step: int = 0


GRAPH = (Along(), Along(1, NODES))
"""Nodes, and edges between them: a batch is one graph of several that are not connected."""

WHOLE: Mapping[str, Sequence[Along | None]] = {
    **dict.fromkeys(("pyg_gcn", "pyg_gat", "pyg_graphsage", "pyg_pna", "pyg_graphunet"), GRAPH),
    "pyg_gps_graphtransformer": (*GRAPH, Along(0, 1)),
    "pyg_point_transformer_conv": (Along(), *GRAPH),
    "pyg_lightgcn_recsys": (Along(1),),
    "pyg_schnet": (Along(), Along(), Along(0, 2)),
    "torch_embeddingbag": (Along(), Along(0, 24), Along()),
    "hf_qwen2_vl": (Along(),) * 5,
    "tv_fasterrcnn_train": (None, Along(0, 3), Along(0, 1)),
    "tv_ssdlite_train": (None, None, *(Along(0, 3), Along(0, 1)) * 2),
}
"""For each tensor of the inputs, in order. These grow by whole makings: graphs, molecules, bags, texts with pictures.

Of a detector, which takes a list of images, it is the number of boxes on them that varies.
"""


def grown(name: str, units: int, device: str = "cpu") -> tuple[Inputs, list[tuple[torch.Tensor, int]]]:
    """The inputs of a model for a batch of so many rows, or makings of `WHOLE`; and each tensor's batch dimension."""
    args, kwargs = MODELS[name]()[1:3]
    first, structure = tree_flatten((args, kwargs))
    batch = _batch(first)
    count = units if name in WHOLE else -(-units // batch)
    makings = [first, *(_leaves(name, seed) for seed in range(1, count))]
    leaves = [leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf for leaf in first]
    dynamic: list[tuple[torch.Tensor, int]] = []
    for number, along in _growing(name, first, batch):
        parts = [making[number].detach() for making in makings]
        if along.step:
            parts = [part + along.step * n for n, part in enumerate(parts)]
        whole = torch.cat(parts, along.dim)
        whole = whole if name in WHOLE else whole.narrow(along.dim, 0, units).clone()
        leaves[number] = whole.to(device).requires_grad_(first[number].requires_grad)
        dynamic.append((leaves[number], along.dim))
    return tree_unflatten(leaves, structure), dynamic


COUNTED = ("pyg_gps_graphtransformer",)
"""Models that compute with one row for each making: a single one would be a batch of 1."""


def sizes(name: str) -> tuple[int, int]:
    """Two batch sizes of a model, counted as `grown` counts: none is 1, which torch compiles apart."""
    leaves = _leaves(name, 0)
    number, along = _growing(name, leaves, _batch(leaves))[0]
    size = leaves[number].shape[along.dim]
    smallest = 1 if name in WHOLE and size > 1 and name not in COUNTED else max(2 if name in WHOLE else size, 2)
    return smallest, smallest + 1


def _leaves(name: str, seed: int) -> list[Any]:
    return tree_flatten(MODELS[name](seed)[1:3])[0]


def _batch(leaves: Sequence[Any]) -> int:
    """The rows of the first tensor."""
    return next(len(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor))


def _growing(name: str, leaves: Sequence[Any], batch: int) -> list[tuple[int, Along]]:
    """What grows: where nothing else is said, the first dimension of each tensor that is as long as the batch."""
    tensors = [number for number, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    if name in WHOLE:
        pairs = zip(tensors, WHOLE[name], strict=True)
        return [(number, along) for number, along in pairs if along is not None]
    return [(n, Along()) for n in tensors if leaves[n].dim() and len(leaves[n]) == batch]
