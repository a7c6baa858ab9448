"""The few models that tests and benchmarks train: some of the corpus, and some of torch alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from bridge.demo.digits import DigitNet
from experiments.corpus.language import DECODER, ENCODER, GPT2, language_model
from experiments.corpus.registry import Loss, Made, seeded
from experiments.corpus.steps import class_scores
from experiments.corpus.vision import torchvision_classifier

MODELS: dict[str, Callable[..., Made]] = {}
"""What `model` has registered, by name: a function of the seed, 0 if not given; it fixes weights and inputs."""


class WithLoss(nn.Module):
    """A module and its loss as one, so that a compiler sees both. Called with the module's arguments."""

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.module = module
        self.loss = loss

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return self.loss(self.module(*args, **kwargs))


def model(make: Callable[[], Made]) -> Callable[..., Made]:
    """Register a model under the function's name."""
    MODELS[make.__name__] = seeded(make)
    return MODELS[make.__name__]


@model
def resnet18() -> Made:
    return torchvision_classifier("resnet18")


@model
def gpt2() -> Made:
    module, args, kwargs, loss = language_model("GPT2", "LMHeadModel", GPT2)
    vars(module)["loss_type"] = "ForCausalLM"  # else transformers warns within the forward, which breaks the graph
    return module, args, kwargs, loss


@model
def bert() -> Made:
    return language_model("Bert", "ForMaskedLM", ENCODER)


@model
def llama() -> Made:
    return language_model("Llama", "ForCausalLM", DECODER)


@model
def mlp() -> Made:
    """Layer norm, GELU and cross-entropy."""
    layers = [nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 10)]
    return nn.Sequential(*layers), (torch.randn(8, 16),), {}, class_scores


class LastState(nn.Module):
    """A recurrent net of two layers over (n, time, 16), with ten scores read off its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(16, 32, num_layers=2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(32, 10)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        states, _ = self.gru(sequence)
        return self.head(states[:, -1])


@model
def gru() -> Made:
    return LastState(), (torch.randn(4, 10, 16),), {}, class_scores


@model
def digits() -> Made:
    return DigitNet(), (torch.rand(16, 1, 8, 8),), {}, class_scores
