"""Four small models, and inputs of any batch size and any length or image size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from experiments.corpus.language import ENCODER, GPT2, VOCABULARY
from experiments.corpus.registry import Loss
from experiments.corpus.steps import class_scores, own_loss
from experiments.models import mlp

Inputs = tuple[tuple[Any, ...], dict[str, Any]]
LONGEST = 512
"""Tokens that the language models take."""


@dataclass(frozen=True)
class Sized:
    """A model whose inputs have two sizes: the batch, and the tokens of a text or the side of an image.

    sizes: those that one compilation has to serve, the first being the one that is compiled for. steady: of these, the
    ones at which steps are timed.
    """

    make: Callable[[], tuple[nn.Module, Loss]]
    inputs: Callable[[int, int], Inputs]
    sizes: tuple[tuple[int, int], ...]
    steady: tuple[tuple[int, int], ...]


def texts(batch: int, length: int) -> Inputs:
    """Texts of different lengths, padded to the longest of them."""
    ids = torch.randint(3, VOCABULARY, (batch, length))
    lengths = torch.randint(1, length + 1, (batch,))
    lengths[0] = length
    mask = (torch.arange(length) < lengths[:, None]).long()
    labels = torch.where(mask == 1, ids, -100)
    return (), {"input_ids": ids, "attention_mask": mask, "labels": labels}


def pictures(batch: int, side: int) -> Inputs:
    return (torch.randn(batch, 3, side, side),), {}


def rows(batch: int, _: int) -> Inputs:
    return (torch.randn(batch, 16),), {}


def gpt2() -> tuple[nn.Module, Loss]:
    import transformers

    sizes: dict[str, Any] = {**GPT2, "n_positions": LONGEST}
    module = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=VOCABULARY, **sizes))
    vars(module)["loss_type"] = "ForCausalLM"  # else transformers warns within the forward, which breaks the graph
    return module, own_loss


def bert() -> tuple[nn.Module, Loss]:
    import transformers

    sizes: dict[str, Any] = {**ENCODER, "max_position_embeddings": LONGEST}
    return transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=VOCABULARY, **sizes)), own_loss


def resnet() -> tuple[nn.Module, Loss]:
    """A ResNet with one block a stage."""
    from torchvision.models.resnet import BasicBlock, ResNet

    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10), class_scores


def perceptron() -> tuple[nn.Module, Loss]:
    module, _, _, loss = mlp()
    return module, loss


TEXTS = ((4, 32), (2, 2), (3, 17), (5, 100), (2, 512), (17, 64), (512, 4), (7, 31))
IMAGES = ((4, 64), (2, 64), (3, 48), (5, 33), (2, 96), (17, 64), (128, 40), (512, 34))
"""A ResNet divides a side by 32: of 33 pixels two are left, and of 32 a single one, which is another program."""
BATCHES = tuple((batch, 0) for batch in (8, 2, 3, 5, 16, 31, 64, 100, 257, 512))

MODELS: dict[str, Sized] = {
    "mlp": Sized(perceptron, rows, BATCHES, ((8, 0), (31, 0), (512, 0))),
    "gpt2": Sized(gpt2, texts, TEXTS, ((4, 32), (17, 64))),
    "bert": Sized(bert, texts, TEXTS, ((4, 32), (17, 64))),
    "resnet": Sized(resnet, pictures, IMAGES, ((4, 64), (3, 48))),
}


def made(name: str) -> tuple[nn.Module, Loss]:
    """The module in training mode and its loss, always with the same weights."""
    torch.manual_seed(0)
    module, loss = MODELS[name].make()
    return module.train(), loss
