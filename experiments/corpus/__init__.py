"""85 models from public packages: small and true to their architecture, with random weights from a seed, in training.

    module, args, kwargs, loss = MODELS["hf_gpt2"]()
    loss(module(*args, **kwargs)).backward()

The module is what is compiled. The loss is part of it only where the package computes it itself.
"""

from __future__ import annotations

from experiments.corpus import decisions, generative, graphs, language, signals, vision
from experiments.corpus.registry import META, MODELS, SKIPPED, Loss, Made, Meta

__all__ = ["META", "MODELS", "SKIPPED", "Loss", "Made", "Meta"]
__all__ += ["decisions", "generative", "graphs", "language", "signals", "vision"]
