"""A small GPT-2 that learns, character by character, the reference manual that comes with Python itself."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from bridge.demo.task import Batch, Task

STEPS = 120
BATCH = 16
CONTEXT = 64


class CharacterModel(nn.Module):
    """GPT-2 from `transformers` with random weights, as a function from characters to the loss of the next ones."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        config = GPT2Config(
            vocab_size=characters,
            n_positions=CONTEXT,
            n_embd=96,
            n_layer=2,
            n_head=4,
            bos_token_id=0,
            eos_token_id=0,
            use_cache=False,
        )
        self.gpt2 = GPT2LMHeadModel(config)
        self.gpt2.loss_type = "ForCausalLM"  # else transformers warns within the forward, which breaks the graph

    def forward(self, characters: torch.Tensor) -> torch.Tensor:
        """The mean loss over (n, CONTEXT) numbered characters."""
        return self.gpt2(input_ids=characters, labels=characters).loss


def manual() -> str:
    """The reference topics that `help()` shows: about 700 kB of English."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


def text_task() -> Task:
    """The training as a task. Needs transformers."""
    text = manual()
    alphabet = sorted(set(text))
    number = {character: position for position, character in enumerate(alphabet)}
    data = torch.tensor([number[character] for character in text])

    def batches() -> Iterator[Batch]:
        generator = torch.Generator().manual_seed(1)
        for _ in range(STEPS):
            starts = torch.randint(len(data) - CONTEXT, (BATCH,), generator=generator)
            yield (torch.stack([data[start : start + CONTEXT] for start in starts.tolist()]),)

    return Task(
        name="text",
        title=f"small GPT-2 on Python's own manual, {len(text) // 1000} kB, by character",
        steps=STEPS,
        make_model=lambda: CharacterModel(len(alphabet)),
        batches=batches,
        make_optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=2e-3),
    )
