"""Models to train: small and true to their architecture, with random weights from a seed, in training mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from bridge.demo.digits import DigitNet

Made = tuple[nn.Module, tuple[Any, ...], dict[str, Any], Callable[[Any], torch.Tensor]]
"""A module, the arguments and keyword arguments of a call, and a function from the call's result to the loss."""

MODELS: dict[str, Callable[..., Made]] = {}
"""What `model` has registered, by name: a function of the seed, 0 if not given; it fixes weights and inputs."""

DECODER: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "use_cache": False,
}


class WithLoss(nn.Module):
    """A module and its loss as one, so that a compiler sees both. Called with the module's arguments."""

    def __init__(self, module: nn.Module, loss: Callable[[Any], torch.Tensor]) -> None:
        super().__init__()
        self.module = module
        self.loss = loss

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return self.loss(self.module(*args, **kwargs))


def model(make: Callable[[], Made]) -> Callable[..., Made]:
    """Register a model under the function's name."""

    def seeded(seed: int = 0) -> Made:
        torch.manual_seed(seed)
        module, args, kwargs, loss = make()
        return module.train(), args, kwargs, loss

    MODELS[make.__name__] = seeded
    return seeded


def tokens(batch: int = 2, length: int = 32, vocabulary: int = 128) -> torch.Tensor:
    """Random token numbers, none of the special ones."""
    return torch.randint(3, vocabulary, (batch, length))


def classes(scores: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of (n, classes) against the classes counted through."""
    return F.cross_entropy(scores, torch.arange(len(scores)) % scores.shape[1])


def own_loss(output: Any) -> torch.Tensor:
    """The loss that a model of `transformers` computes itself."""
    return output.loss


@model
def resnet18() -> Made:
    from torchvision.models import resnet18

    return resnet18(weights=None, num_classes=10), (torch.randn(2, 3, 64, 64),), {}, classes


@model
def gpt2() -> Made:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=128,
        n_embd=64,
        n_layer=2,
        n_head=4,
        n_positions=64,
        bos_token_id=1,
        eos_token_id=2,
        use_cache=False,
    )
    module = GPT2LMHeadModel(config)
    module.loss_type = "ForCausalLM"  # else transformers warns in the middle of the forward, which breaks the graph
    ids = tokens()
    return module, (), {"input_ids": ids, "labels": ids.clone()}, own_loss


@model
def bert() -> Made:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
    )
    ids = tokens()
    return BertForMaskedLM(config), (), {"input_ids": ids, "labels": ids.clone()}, own_loss


@model
def llama() -> Made:
    from transformers import LlamaConfig, LlamaForCausalLM

    ids = tokens()
    module = LlamaForCausalLM(LlamaConfig(vocab_size=128, **DECODER))
    return module, (), {"input_ids": ids, "labels": ids.clone()}, own_loss


@model
def mlp() -> Made:
    """Layer norm, GELU and cross-entropy."""
    layers = [nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 10)]
    return nn.Sequential(*layers), (torch.randn(8, 16),), {}, classes


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
    return LastState(), (torch.randn(4, 10, 16),), {}, classes


@model
def digits() -> Made:
    return DigitNet(), (torch.rand(16, 1, 8, 8),), {}, classes
