"""What is timed: the corpus, and larger configurations of five models, of a size that people train on a CPU."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from experiments.corpus import MODELS as CORPUS
from experiments.corpus import Made
from experiments.corpus.registry import seeded

LARGER: dict[str, Callable[[], Made]] = {}


def larger(make: Callable[[], Made]) -> Callable[[], Made]:
    """Register a model under the function's name."""
    LARGER[make.__name__] = seeded(make)
    return LARGER[make.__name__]


@larger
def gpt2_larger() -> Made:
    """Six layers of width 384 over 4 sequences of 128 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=2048, n_embd=384, n_layer=6, n_head=6, n_positions=128, use_cache=False)
    module = GPT2LMHeadModel(config)
    module.loss_type = "ForCausalLM"
    ids = torch.randint(2048, (4, 128))
    return module, (), {"input_ids": ids, "labels": ids.clone()}, lambda output: output.loss


@larger
def bert_larger() -> Made:
    """Six layers of width 384 over 4 sequences of 128 tokens."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=2048,
        hidden_size=384,
        intermediate_size=1536,
        num_hidden_layers=6,
        num_attention_heads=6,
        max_position_embeddings=128,
    )
    ids = torch.randint(2048, (4, 128))
    return BertForMaskedLM(config), (), {"input_ids": ids, "labels": ids.clone()}, lambda output: output.loss


@larger
def vit_larger() -> Made:
    """torchvision's ViT with patches of 16, six layers of width 384, over 8 images of 128 × 128."""
    from torchvision.models import VisionTransformer

    module = VisionTransformer(128, 16, num_layers=6, num_heads=6, hidden_dim=384, mlp_dim=1536, num_classes=100)
    return module, (torch.randn(8, 3, 128, 128),), {}, _classes


@larger
def resnet50_larger() -> Made:
    """torchvision's ResNet-50 over 4 images of 128 × 128."""
    from torchvision.models import resnet50

    return resnet50(weights=None, num_classes=100), (torch.randn(4, 3, 128, 128),), {}, _classes


@larger
def mlp_larger() -> Made:
    """Six layers of width 1024 with layer norm, GELU and dropout, over a batch of 256."""
    layers: list[nn.Module] = []
    for _ in range(6):
        layers += [nn.Linear(1024, 1024), nn.LayerNorm(1024), nn.GELU(), nn.Dropout(0.1)]
    return nn.Sequential(*layers, nn.Linear(1024, 100)), (torch.randn(256, 1024),), {}, _classes


def _classes(scores: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(scores, torch.arange(len(scores)) % scores.shape[1])


MODELS: dict[str, Callable[[], Made]] = {**CORPUS, **LARGER}
"""Everything that can be timed, by name."""
