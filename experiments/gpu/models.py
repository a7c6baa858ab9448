"""The models whose training step is timed on a GPU, at sizes that people train: modules that give their loss."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Made = tuple[nn.Module, dict[str, torch.Tensor]]

MODELS: dict[str, Callable[[], Made]] = {}
"""By name; made on the current default device."""


def timed(make: Callable[[], Made]) -> Callable[[], Made]:
    """Register a model under the function's name."""
    MODELS[make.__name__] = make
    return make


class Scored(nn.Module):
    """A classifier with its loss."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.module(x), target)


class Loss(nn.Module):
    """A model of transformers that computes its own loss, and nothing else of what it gives."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.module(input_ids=ids, labels=ids).loss


@timed
def mlp() -> Made:
    """Three layers of 256 × 64."""
    layers = [nn.Linear(64, 128), nn.LayerNorm(128), nn.GELU(), nn.Linear(128, 128), nn.LayerNorm(128), nn.GELU()]
    model = Scored(nn.Sequential(*layers, nn.Linear(128, 10)))
    return model, {"x": torch.randn(256, 64), "target": torch.randint(10, (256,))}


@timed
def gpt2() -> Made:
    """GPT-2 of 124 M parameters, 8 × 1024 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(use_cache=False, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0))
    model.loss_type = "ForCausalLM"
    return Loss(model), {"ids": torch.randint(50257, (8, 1024))}


@timed
def bert() -> Made:
    """BERT-base with the loss of masked words, 32 × 512 tokens."""
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    return Loss(model), {"ids": torch.randint(30522, (32, 512))}


@timed
def llama() -> Made:
    """A decoder like Llama's of 300 M parameters, 4 × 1024 tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=18,
        num_attention_heads=16,
        num_key_value_heads=8,
        max_position_embeddings=1024,
        use_cache=False,
    )
    return Loss(LlamaForCausalLM(config)), {"ids": torch.randint(32000, (4, 1024))}


@timed
def vit() -> Made:
    """ViT-B/16 over 64 images of 224 × 224."""
    from torchvision.models import vit_b_16

    return Scored(vit_b_16()), {"x": torch.randn(64, 3, 224, 224), "target": torch.randint(1000, (64,))}


@timed
def resnet50() -> Made:
    """ResNet-50 over 64 images of 224 × 224."""
    from torchvision.models import resnet50 as make

    return Scored(make()), {"x": torch.randn(64, 3, 224, 224), "target": torch.randint(1000, (64,))}


class Recommender(nn.Module):
    """DLRM: embeddings and dense features, their products two by two, and a perceptron over them."""

    def __init__(self, tables: int = 26, rows: int = 100_000, width: int = 64) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom = _perceptron([13, 512, 256, width])
        self.top = _perceptron([width + (tables + 1) * tables // 2, 1024, 512, 256, 1])
        pairs = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("pairs", pairs[0] * (tables + 1) + pairs[1])

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        bottom = self.bottom(dense)
        features = torch.stack([bottom, *(table(sparse[:, n]) for n, table in enumerate(self.tables))], 1)
        products = torch.bmm(features, features.transpose(1, 2)).flatten(1).index_select(1, self.get_buffer("pairs"))
        scores = self.top(torch.cat([bottom.to(products.dtype), products], 1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(scores.float(), target)


def _perceptron(widths: list[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for n, (before, after) in enumerate(pairwise(widths)):
        layers += [nn.Linear(before, after), *([nn.ReLU()] if n < len(widths) - 2 else [])]
    return nn.Sequential(*layers)


@timed
def dlrm() -> Made:
    """26 tables of 100 000 rows, 2048 samples."""
    inputs = {"dense": torch.randn(2048, 13), "sparse": torch.randint(100_000, (2048, 26)), "target": torch.rand(2048)}
    return Recommender(), inputs
