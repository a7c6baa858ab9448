"""What makes pictures and sounds: diffusion, autoencoders, generators."""

# The packages are those of the extra "corpus".
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import torch

from experiments.corpus.registry import Made, register
from experiments.corpus.steps import distance, images


@register("df_unet2d", "diffusers", "diffusion")
def unet2d() -> Made:
    from diffusers.models.unets.unet_2d import UNet2DModel

    module = UNet2DModel(
        sample_size=16,
        in_channels=3,
        out_channels=3,
        block_out_channels=(32, 64),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
    )
    return module, (images(2, 16), torch.tensor([3, 7])), {}, distance


@register("df_dit", "diffusers", "diffusion")
def dit() -> Made:
    from diffusers.models.transformers.dit_transformer_2d import DiTTransformer2DModel

    module = DiTTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=16,
        in_channels=4,
        num_layers=2,
        sample_size=8,
        patch_size=2,
        norm_num_groups=4,
        num_embeds_ada_norm=10,
    )
    return module, (images(2, 8, 4), torch.tensor([3, 7]), torch.tensor([1, 2])), {}, distance


@register("df_autoencoder_kl", "diffusers", "vae")
def autoencoder_kl() -> Made:
    from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL

    blocks: dict[str, Any] = {
        "block_out_channels": (16, 32),
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
    }
    module = AutoencoderKL(latent_channels=4, norm_num_groups=8, **blocks)
    return module, (images(2, 32),), {"sample_posterior": True}, distance


@register("df_flux", "diffusers", "diffusion")
def flux() -> Made:
    from diffusers.models.transformers.transformer_flux import FluxTransformer2DModel

    module = FluxTransformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=(4, 4, 8),
    )
    inputs = {
        "hidden_states": torch.randn(2, 16, 4),
        "encoder_hidden_states": torch.randn(2, 8, 32),
        "pooled_projections": torch.randn(2, 32),
        "timestep": torch.tensor([0.3, 0.7]),
        "img_ids": torch.randn(16, 3),
        "txt_ids": torch.zeros(8, 3),
    }
    return module, (), inputs, distance


@register("vq_residual_vq", "vector_quantize_pytorch", "vae")
def residual_vq() -> Made:
    from vector_quantize_pytorch import ResidualVQ

    def loss(output: Any) -> torch.Tensor:
        quantized, _, commitment = output
        return distance(quantized) + commitment.sum()

    module = ResidualVQ(dim=32, num_quantizers=2, codebook_size=16)
    return module, (torch.randn(2, 24, 32, requires_grad=True),), {}, loss


@register("hf_hifigan_vocoder", "transformers", "gan")
def hifigan() -> Made:
    import transformers

    config = transformers.SpeechT5HifiGanConfig(
        model_in_dim=20,
        upsample_initial_channel=32,
        upsample_rates=[4, 4],
        upsample_kernel_sizes=[8, 8],
        resblock_kernel_sizes=[3, 7],
        resblock_dilation_sizes=[[1, 3], [1, 3]],
    )
    return transformers.SpeechT5HifiGan(config), (torch.randn(2, 12, 20),), {}, distance


@register("monai_generator", "monai", "gan")
def generator() -> Made:
    from monai.networks.nets.generator import Generator

    return Generator((32,), (8, 8, 8), (8, 4, 1), (2, 2, 1)), (torch.randn(2, 32),), {}, distance
