"""Text: decoders, encoders and pairs of both, with attention, experts, state spaces or Fourier transforms."""

# The packages are those of the extra "corpus".
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from experiments.corpus.registry import Made, register
from experiments.corpus.steps import distance, own_loss, result, tokens

VOCABULARY = 128

ENCODER: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
DECODER: dict[str, Any] = {
    **ENCODER,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "use_cache": False,
}
GPT2: dict[str, Any] = {
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "use_cache": False,
}


def language_model(family: str, head: str, configuration: dict[str, Any], length: int = 32) -> Made:
    """A model of `transformers` that is taught its own input. family: as in `LlamaConfig`; head: the class after it."""
    import transformers

    ids = tokens(2, length, VOCABULARY)
    config = getattr(transformers, f"{family}Config")(vocab_size=VOCABULARY, **configuration)
    module = getattr(transformers, f"{family}{head}")(config)
    return module, (), {"input_ids": ids, "labels": ids.clone()}, own_loss


def _language_models() -> list[tuple[str, str, str, str, dict[str, Any], int]]:
    """Name, domain, family, head, configuration and length."""
    causal, masked = "ForCausalLM", "ForMaskedLM"
    gemma2 = {"head_dim": 16, "sliding_window": 16}
    qwen3_next = {
        "head_dim": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
        "layer_types": ["linear_attention", "full_attention"],
    }
    deepseek_v3 = {
        "num_key_value_heads": 4,
        "q_lora_rank": 32,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 16,
        "n_routed_experts": 4,
        "n_group": 2,
        "topk_group": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "first_k_dense_replace": 1,
    }
    gpt_oss = {"head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8}
    mamba = {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "use_cache": False}
    mamba2 = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "state_size": 8,
        "head_dim": 16,
        "num_heads": 4,
        "n_groups": 1,
        "expand": 2,
        "chunk_size": 8,
        "use_cache": False,
    }
    deberta_v2 = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16}
    t5 = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}
    t5 |= {"decoder_start_token_id": 0, "use_cache": False}
    xlnet = {"d_model": 64, "n_layer": 2, "n_head": 4, "d_inner": 128}
    mixtral = {"num_local_experts": 4, "output_router_logits": True}
    return [
        ("gpt2", "lm", "GPT2", "LMHeadModel", GPT2, 32),
        ("llama_gqa", "lm", "Llama", causal, DECODER, 32),
        ("mixtral_moe", "lm", "Mixtral", causal, DECODER | mixtral, 32),
        ("gemma2", "lm", "Gemma2", causal, DECODER | gemma2, 32),
        ("qwen3", "lm", "Qwen3", causal, DECODER | {"head_dim": 16}, 32),
        ("qwen3_next_hybrid", "lm", "Qwen3Next", causal, DECODER | qwen3_next, 16),
        ("deepseek_v3_mla", "lm", "DeepseekV3", causal, DECODER | deepseek_v3, 16),
        ("gpt_oss", "lm", "GptOss", causal, DECODER | gpt_oss, 16),
        ("mamba", "ssm", "Mamba", causal, mamba, 8),
        ("mamba2", "ssm", "Mamba2", causal, mamba2, 16),
        ("bert_mlm", "lm", "Bert", masked, ENCODER, 32),
        ("deberta_v2", "lm", "DebertaV2", masked, ENCODER | deberta_v2, 32),
        ("t5", "seq2seq", "T5", "ForConditionalGeneration", t5, 32),
        ("xlnet", "lm", "XLNet", "LMHeadModel", xlnet, 32),
        ("longformer", "lm", "Longformer", masked, ENCODER | {"attention_window": 8}, 32),
    ]


for _name, _domain, *_arguments in _language_models():
    _make: Callable[..., Made] = partial(language_model, *_arguments)
    register(f"hf_{_name}", "transformers", _domain)(_make)


@register("hf_fnet_fft", "transformers", "lm")
def fnet() -> Made:
    import transformers

    sizes = {name: size for name, size in ENCODER.items() if name != "num_attention_heads"}
    module = transformers.FNetForMaskedLM(transformers.FNetConfig(vocab_size=VOCABULARY, **sizes))
    return module, (), {"input_ids": tokens(), "labels": tokens()}, own_loss


@register("hf_xlstm", "transformers", "rnn")
def xlstm() -> Made:
    import transformers

    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "embedding_dim": 32,
        "num_hidden_layers": 1,
        "num_blocks": 1,
        "num_heads": 2,
    }
    config = transformers.xLSTMConfig(vocab_size=VOCABULARY, use_cache=False, chunk_size=16, **sizes)
    ids = tokens(2, 16)
    return transformers.xLSTMForCausalLM(config), (), {"input_ids": ids, "labels": ids.clone()}, own_loss


@register("xt_decoder_rope_swiglu", "x_transformers", "lm")
def rotary_decoder() -> Made:
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    layers = Decoder(
        dim=64,
        depth=2,
        heads=4,
        attn_dim_head=16,
        rotary_pos_emb=True,
        ff_glu=True,
        ff_swish=True,
        attn_qk_norm=True,
        use_rmsnorm=True,
    )
    module = AutoregressiveWrapper(TransformerWrapper(num_tokens=VOCABULARY, max_seq_len=33, attn_layers=layers))
    return module, (tokens(2, 33),), {}, result


@register("xt_encdec", "x_transformers", "seq2seq")
def encoder_decoder() -> Made:
    from x_transformers import XTransformer

    module = XTransformer(
        dim=32,
        enc_num_tokens=64,
        enc_depth=1,
        enc_heads=2,
        enc_max_seq_len=16,
        dec_num_tokens=64,
        dec_depth=1,
        dec_heads=2,
        dec_max_seq_len=16,
    )
    texts = (tokens(2, 16, 64), tokens(2, 16, 64))
    return module, texts, {"mask": torch.ones(2, 16, dtype=torch.bool)}, result


@register("torch_nn_transformer", "torch", "seq2seq")
def transformer() -> Made:
    module = nn.Transformer(32, 4, 1, 1, 64, batch_first=True)
    sequences = (torch.randn(2, 8, 32), torch.randn(2, 6, 32))
    mask = nn.Transformer.generate_square_subsequent_mask(6)
    return module, sequences, {"tgt_mask": mask, "tgt_is_causal": True}, distance


@register("mambapy_pscan", "mambapy", "ssm")
def parallel_scan() -> Made:
    from mambapy.mamba import Mamba, MambaConfig

    return Mamba(MambaConfig(d_model=16, n_layers=2, d_state=4)), (torch.randn(2, 16, 16),), {}, distance
