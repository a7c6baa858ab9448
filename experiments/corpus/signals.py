"""Speech, sound and time series, and texts with pictures."""

# The packages are those of the extra "corpus".
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from experiments.corpus.language import DECODER, ENCODER
from experiments.corpus.registry import Made, register
from experiments.corpus.steps import distance, images, own_loss, tokens


@register("hf_whisper", "transformers", "speech")
def whisper() -> Made:
    import transformers

    config = transformers.WhisperConfig(
        vocab_size=128,
        num_mel_bins=20,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_source_positions=32,
        max_target_positions=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        use_cache=False,
        dropout=0.1,
    )
    module = transformers.WhisperForConditionalGeneration(config)
    return module, (), {"input_features": torch.randn(2, 20, 64), "labels": tokens(2, 16)}, own_loss


@register("hf_encodec_lstm", "transformers", "speech")
def encodec() -> Made:
    import transformers

    config = transformers.EncodecConfig(
        num_filters=4,
        hidden_size=16,
        codebook_size=16,
        codebook_dim=16,
        upsampling_ratios=[4, 2],
        target_bandwidths=[24.0],
        norm_type="weight_norm",
    )

    def power(output: Any) -> torch.Tensor:
        return output.audio_values.pow(2).mean()

    return transformers.EncodecModel(config), (torch.randn(1, 1, 256),), {}, power


@register("hf_patchtst", "transformers", "timeseries")
def patchtst() -> Made:
    import transformers

    config = transformers.PatchTSTConfig(
        num_input_channels=3,
        context_length=32,
        patch_length=8,
        patch_stride=4,
        prediction_length=8,
        d_model=32,
        num_attention_heads=4,
        num_hidden_layers=2,
        ffn_dim=64,
        ff_dropout=0.1,
        loss="mse",
    )
    module = transformers.PatchTSTForPrediction(config)
    return module, (), {"past_values": torch.randn(2, 32, 3), "future_values": torch.randn(2, 8, 3)}, own_loss


@register("hf_informer", "transformers", "timeseries")
def informer() -> Made:
    import transformers

    config = transformers.InformerConfig(
        prediction_length=8,
        context_length=16,
        lags_sequence=[1, 2],
        num_time_features=2,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
    )
    module = transformers.InformerForPrediction(config)
    past = 16 + 2  # the context, and the longest lag before it
    values = {
        "past_values": torch.rand(2, past) + 0.5,
        "past_time_features": torch.randn(2, past, 2),
        "past_observed_mask": torch.ones(2, past),
        "future_values": torch.rand(2, 8) + 0.5,
        "future_time_features": torch.randn(2, 8, 2),
    }
    return module, (), values, own_loss


@register("torch_gru", "torch", "rnn")
def gru() -> Made:
    module = nn.GRU(16, 32, num_layers=2, batch_first=True, dropout=0.1)
    return module, (torch.randn(2, 10, 16),), {}, distance


@register("torch_rnn_tanh", "torch", "rnn")
def rnn() -> Made:
    module = nn.RNN(16, 32, num_layers=2, batch_first=True, dropout=0.1)
    return module, (torch.randn(2, 10, 16),), {}, distance


@register("hf_clip", "transformers", "multimodal")
def clip() -> Made:
    import transformers

    text = {"vocab_size": 128, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0, **ENCODER}
    layers = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.CLIPConfig(
        text_config=text, vision_config={"image_size": 32, "patch_size": 8, **layers}, projection_dim=32
    )
    module = transformers.CLIPModel(config)
    return module, (), {"input_ids": tokens(2, 16), "pixel_values": images(2, 32), "return_loss": True}, own_loss


@register("hf_qwen2_vl", "transformers", "multimodal")
def qwen2_vl() -> Made:
    import transformers

    image, begin, end, video = 5, 6, 7, 8
    rotary = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1e4}
    config = transformers.Qwen2VLConfig(
        text_config={**DECODER, "vocab_size": 128, "rope_parameters": rotary},
        vision_config={
            "depth": 2,
            "embed_dim": 32,
            "hidden_size": 64,
            "num_heads": 2,
            "patch_size": 4,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
        image_token_id=image,
        vision_start_token_id=begin,
        vision_end_token_id=end,
        video_token_id=video,
    )
    ids = tokens(1, 24).clamp(min=10)
    ids[:, 1], ids[:, 2:6], ids[:, 6] = begin, image, end
    module = transformers.Qwen2VLForConditionalGeneration(config)
    inputs = {
        "input_ids": ids,
        "pixel_values": torch.randn(16, 3 * 2 * 16),
        "image_grid_thw": torch.tensor([[1, 4, 4]]),
        "mm_token_type_ids": (ids == image).int(),
        "labels": ids.clone(),
    }
    return module, (), inputs, own_loss
