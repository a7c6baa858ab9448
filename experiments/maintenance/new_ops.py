"""What torch has brought since 2.12, called once each: does it run in TVM with no change here?

    python -m experiments.maintenance.new_ops         under the newest torch; keeps results/new_ops.jsonl

Each call goes through `bridge.coverage`, forward and, where it has one, backward: decompositions first, then the table.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch.nn import functional as F

import bridge
from bridge.ledger import Placement, Way
from experiments.maintenance.outcomes import RESULTS, Outcome

Call = Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]

aten: Any = torch.ops.aten


def _square() -> torch.Tensor:
    x = torch.randn(4, 4)
    return (x @ x.T + torch.eye(4)).requires_grad_()


def _key() -> torch.Tensor:
    return torch.tensor([7, 0], dtype=torch.uint64)


def _image() -> torch.Tensor:
    return torch.randn(1, 3, 8, 8, requires_grad=True)


CALLS: dict[str, tuple[str, Call]] = {
    "_foreach_clone": ("2.12", lambda: (lambda x, y: aten._foreach_clone([x, y]), (_image(), _image()))),
    "_upsample_lanczos2d_aa": (
        "2.12",
        lambda: (lambda x: F.interpolate(x, size=(5, 5), mode="lanczos", antialias=True), (_image(),)),
    ),
    "_philox_key_split": ("2.12", lambda: (lambda key: aten._philox_key_split(key, 2), (_key(),))),
    "_philox_key_fold_in": ("2.12", lambda: (lambda key: aten._philox_key_fold_in(key, 3), (_key(),))),
    "_philox_normal_": ("2.12", lambda: (lambda x, key: aten._philox_normal_(x * 1, key), (torch.ones(4), _key()))),
    "_philox_uniform_": ("2.12", lambda: (lambda x, key: aten._philox_uniform_(x * 1, key), (torch.ones(4), _key()))),
    "dim, numel, storage_offset": (
        "2.12",
        lambda: (lambda x: x * x.dim() * x.numel() + x.storage_offset() + x.is_contiguous(), (_image(),)),
    ),
    "_foreach_mm": ("2.13", lambda: (lambda x, y: aten._foreach_mm([x, y], [y, x]), (_square(), _square()))),
    "linear_cross_entropy": (
        "2.13",
        lambda: (
            lambda x, w, y: F.linear_cross_entropy(x, w, y),  # type: ignore[attr-defined]
            (torch.randn(6, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True), torch.arange(6) % 5),
        ),
    ),
    "linalg_matrix_sqrth": ("2.14", lambda: (torch.linalg.matrix_sqrth, (_square(),))),  # type: ignore[attr-defined]
    "linalg_polar": ("2.14", lambda: (torch.linalg.polar, (_square(),))),  # type: ignore[attr-defined]
    "_philox_key_fold_in.Tensor": (
        "2.14",
        lambda: (aten._philox_key_fold_in.Tensor, (_key(), torch.tensor(3, dtype=torch.uint64))),
    ),
    "_philox_randint_": (
        "2.15",
        lambda: (lambda x, key: aten._philox_randint_(x * 1, key, 0, 9), (torch.ones(4, dtype=torch.int64), _key())),
    ),
}
"""By name, the series that brought it and how it is called. Left out: what is CUDA's alone, and `out` variants."""


def outcome(name: str, series: str, call: Call) -> Outcome:
    """Capture one call and place its nodes. What is no op of a graph (a size that is asked for) leaves no node."""
    ways: dict[Way, dict[str, int]] = {way: {} for way in Way}
    error = ""
    records: list[Any] = []
    try:
        function, arguments = call()
        records = bridge.coverage(function, *arguments).records()
    except Exception as failure:  # torch's own refusal of the call on this machine is a result
        error = f"{type(failure).__name__}: {str(failure).splitlines()[0][:200]}"
    for record in records:
        if isinstance(record, Placement):
            counts = ways[record.way]
            counts[record.op] = counts.get(record.op, 0) + record.nodes
    uncaptured = {**ways[Way.FALLBACK], **ways[Way.UNCAPTURED]}
    return Outcome(name, series, torch.__version__, ways[Way.GENERATED], ways[Way.LIBRARY], uncaptured, error)


def main() -> None:
    torch.manual_seed(0)
    found = [outcome(name, series, call) for name, (series, call) in CALLS.items()]
    for one in found:
        print(one)
    RESULTS.write_text("".join(json.dumps(asdict(one)) + "\n" for one in found), encoding="utf-8")


if __name__ == "__main__":
    main()
