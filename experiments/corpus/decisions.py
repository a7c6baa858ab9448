"""Recommenders, tables and policies."""

# The packages are those of the extra "corpus".
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from experiments.corpus.registry import Made, register
from experiments.corpus.steps import distance, last_scores, probabilities


@register("dctr_xdeepfm", "deepctr_torch", "recsys")
def xdeepfm() -> Made:
    from deepctr_torch.inputs import DenseFeat, SparseFeat
    from deepctr_torch.models import xDeepFM

    features = [SparseFeat(f"s{i}", 20, 8) for i in range(4)] + [DenseFeat(f"d{i}", 1) for i in range(3)]
    module = xDeepFM(features, features, dnn_hidden_units=(32, 16), cin_layer_size=(16, 8), device="cpu")
    rows = torch.cat([torch.randint(0, 20, (8, 4)).float(), torch.rand(8, 3)], 1)
    return module, (rows,), {}, probabilities


@register("dctr_din_seq", "deepctr_torch", "recsys")
def dien() -> Made:
    """DIEN, which reads the user's history with a GRU."""
    from deepctr_torch.inputs import DenseFeat, SparseFeat, VarLenSparseFeat
    from deepctr_torch.models import DIEN

    history = SparseFeat("hist_item", 20, 8, embedding_name="item")
    features = [
        SparseFeat("user", 10, 4),
        SparseFeat("item", 20, 8),
        DenseFeat("s", 1),
        VarLenSparseFeat(history, 4, length_name="seq_length"),
    ]
    module = DIEN(features, ["item"], dnn_hidden_units=(16,), gru_type="GRU", use_negsampling=False, device="cpu")
    user, item, score = torch.randint(0, 10, (8, 1)), torch.randint(1, 20, (8, 1)), torch.ones(8, 1)
    items, length = torch.randint(1, 20, (8, 4)), torch.full((8, 1), 4)
    return module, (torch.cat([user, item, score, items, length], 1).float(),), {}, probabilities


@register("torch_embeddingbag", "torch", "recsys")
def embedding_bag() -> Made:
    module = nn.EmbeddingBag(50, 8, mode="sum")
    bags = (torch.randint(0, 50, (24,)), torch.arange(0, 24, 3))
    return module, bags, {"per_sample_weights": torch.rand(24)}, distance


@register("rtdl_ft_transformer", "rtdl_revisiting_models", "tabular")
def ft_transformer() -> Made:
    from rtdl_revisiting_models import FTTransformer

    module = FTTransformer(
        n_cont_features=5,
        cat_cardinalities=[4, 7],
        d_out=3,
        n_blocks=2,
        d_block=32,
        attention_n_heads=4,
        attention_dropout=0.1,
        ffn_d_hidden=None,
        ffn_d_hidden_multiplier=4 / 3,
        ffn_dropout=0.1,
        residual_dropout=0.0,
    )
    numbers = torch.randn(8, 5)
    categories = torch.stack([torch.randint(0, 4, (8,)), torch.randint(0, 7, (8,))], 1)
    return module, (numbers, categories), {}, last_scores


class Evaluated(nn.Module):
    """What PPO calls in its training: values, logarithms of probabilities and entropies of actions."""

    def __init__(self, policy: Any) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, observations: torch.Tensor, actions: torch.Tensor) -> Any:
        return self.policy.evaluate_actions(observations, actions)


@register("sb3_ppo_cnn", "stable_baselines3", "rl")
def ppo() -> Made:
    import numpy as np
    from gymnasium.spaces import Box, Discrete
    from stable_baselines3.common.policies import ActorCriticCnnPolicy

    def loss(output: Any) -> torch.Tensor:
        values, log_probabilities, entropy = output
        return values.pow(2).mean() - log_probabilities.mean() - 0.01 * entropy.mean()

    policy = ActorCriticCnnPolicy(Box(0, 255, (4, 84, 84), np.uint8), Discrete(6), lambda _: 3e-4)
    frames = torch.randint(0, 256, (2, 4, 84, 84), dtype=torch.uint8)
    return Evaluated(policy), (frames, torch.tensor([1, 2])), {}, loss


@register("hf_decision_transformer", "transformers", "rl")
def decision_transformer() -> Made:
    import transformers

    sizes: dict[str, Any] = {
        "state_dim": 5,
        "act_dim": 3,
        "hidden_size": 32,
        "n_layer": 2,
        "n_head": 2,
        "max_ep_len": 64,
    }
    module = transformers.DecisionTransformerModel(transformers.DecisionTransformerConfig(**sizes))
    inputs = {
        "states": torch.randn(2, 6, 5),
        "actions": torch.randn(2, 6, 3),
        "rewards": torch.randn(2, 6, 1),
        "returns_to_go": torch.randn(2, 6, 1),
        "timesteps": torch.arange(6).repeat(2, 1),
        "attention_mask": torch.ones(2, 6),
    }
    return module, (), inputs, lambda output: distance(output.action_preds)
