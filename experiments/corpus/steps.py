"""Inputs to give to a model, and losses to take of what it returns."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F


def images(batch: int = 2, size: int = 64, channels: int = 3) -> torch.Tensor:
    """Square images of noise."""
    return torch.randn(batch, channels, size, size)


def tokens(batch: int = 2, length: int = 32, vocabulary: int = 128) -> torch.Tensor:
    """Random token numbers, none of the special ones."""
    return torch.randint(3, vocabulary, (batch, length))


def first(output: Any) -> Any:
    """The first of several results, or the only one."""
    return output[0] if isinstance(output, tuple | list) else output


def own_loss(output: Any) -> torch.Tensor:
    """The loss that a model of `transformers` computes itself."""
    return output.loss


def result(loss: torch.Tensor) -> torch.Tensor:
    """Of a model that returns its loss."""
    return loss


def counted_through(places: torch.Tensor, classes: int) -> torch.Tensor:
    """A class for each place of a tensor, one after the other."""
    return torch.arange(places.numel()).reshape(places.shape) % classes


def class_scores(output: Any) -> torch.Tensor:
    """Cross-entropy of (n, classes, …) against up to ten classes counted through."""
    scores = first(output)
    count = scores.shape[1]
    if scores.dim() > 2:
        scores = scores.flatten(2).transpose(1, 2).reshape(-1, count)
    return F.cross_entropy(scores, torch.arange(len(scores), device=scores.device) % min(10, count))


def last_scores(output: Any) -> torch.Tensor:
    """Cross-entropy of (…, classes) against the classes counted through."""
    scores = first(output)
    scores = scores.reshape(-1, scores.shape[-1])
    return F.cross_entropy(scores, torch.arange(len(scores), device=scores.device) % scores.shape[-1])


def distance(output: Any) -> torch.Tensor:
    """Mean square distance from one half, also of what `diffusers` returns."""
    value = first(output)
    value = getattr(value, "sample", value)
    return F.mse_loss(value, torch.ones_like(value) * 0.5)


def probabilities(output: torch.Tensor) -> torch.Tensor:
    """Binary cross-entropy of probabilities against 0.3."""
    return F.binary_cross_entropy(output, torch.full_like(output, 0.3))


def links(output: torch.Tensor) -> torch.Tensor:
    """Binary cross-entropy of logits against 0.7."""
    return F.binary_cross_entropy_with_logits(output, torch.ones_like(output) * 0.7)


def sum_of_losses(output: dict[str, torch.Tensor]) -> torch.Tensor:
    """Of a detector, which returns its losses by name."""
    return torch.stack(list(output.values())).sum()
