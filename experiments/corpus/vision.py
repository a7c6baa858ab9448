"""Images and videos: classification, segmentation, detection and optical flow."""

# The packages are those of the extra "corpus".
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import torch

from experiments.corpus.registry import Loss, Made, register
from experiments.corpus.steps import class_scores, counted_through, images, last_scores, sum_of_losses


def torchvision_classifier(name: str, size: int = 64) -> Made:
    """A classifier of torchvision's by the name of its constructor."""
    from torchvision import models

    return getattr(models, name)(weights=None, num_classes=10), (images(2, size),), {}, class_scores


for _name, _size in {
    "resnet18": 64,
    "efficientnet_b0": 64,
    "shufflenet_v2_x0_5": 64,
    "vgg11_bn": 32,
    "regnet_y_400mf": 64,
}.items():
    register(f"tv_{_name}", "torchvision", "cnn")(lambda name=_name, size=_size: torchvision_classifier(name, size))


@register("tv_densenet", "torchvision", "cnn")
def densenet() -> Made:
    from torchvision.models import DenseNet

    return DenseNet(12, (3, 3, 3), 24, num_classes=10), (images(),), {}, class_scores  # type: ignore[arg-type]


@register("tv_convnext", "torchvision", "cnn")
def convnext() -> Made:
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    blocks = [CNBlockConfig(32, 64, 2), CNBlockConfig(64, 128, 2), CNBlockConfig(128, None, 2)]
    return ConvNeXt(blocks, 0.1, num_classes=10), (images(),), {}, class_scores


@register("tv_swin_v1", "torchvision", "vit")
def swin_v1() -> Made:
    from torchvision.models.swin_transformer import SwinTransformer

    module = SwinTransformer([4, 4], 24, [2, 2], [2, 4], [4, 4], stochastic_depth_prob=0.1, num_classes=10)
    return module, (images(),), {}, class_scores


@register("tv_swin_v2", "torchvision", "vit")
def swin_v2() -> Made:
    from torchvision.models.swin_transformer import PatchMergingV2, SwinTransformer, SwinTransformerBlockV2

    second: dict[str, Any] = {"block": SwinTransformerBlockV2, "downsample_layer": PatchMergingV2}
    module = SwinTransformer([4, 4], 24, [2, 2], [2, 4], [4, 4], num_classes=10, **second)
    return module, (images(),), {}, class_scores


@register("tv_fasterrcnn_train", "torchvision", "detection")
def fasterrcnn() -> Made:
    from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn

    boxes = torch.tensor([[8.0, 8.0, 60.0, 60.0], [20.0, 10.0, 80.0, 70.0]])
    targets = [{"boxes": boxes, "labels": torch.tensor([1, 2])}]
    module = fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None,
        weights_backbone=None,
        num_classes=4,
        min_size=128,
        max_size=128,
        box_batch_size_per_image=32,
        rpn_post_nms_top_n_train=50,
    )
    return module, ([torch.rand(3, 96, 96)], targets), {}, sum_of_losses


@register("tv_ssdlite_train", "torchvision", "detection")
def ssdlite() -> Made:
    from torchvision.models.detection import ssdlite320_mobilenet_v3_large

    targets = [{"boxes": torch.tensor([[8.0, 8.0, 60.0, 60.0]]), "labels": torch.tensor([1])}] * 2
    module = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4)
    return module, ([torch.rand(3, 96, 96)] * 2, targets), {}, sum_of_losses


@register("tv_r3d18_video", "torchvision", "video")
def r3d18() -> Made:
    from torchvision.models.video import r3d_18

    return r3d_18(weights=None, num_classes=10), (torch.randn(1, 3, 4, 32, 32),), {}, class_scores


@register("tv_raft_small_flow", "torchvision", "video")
def raft() -> Made:
    from torchvision.models.optical_flow import raft_small

    def loss(flows: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack([flow.abs().mean() for flow in flows]).sum()

    return raft_small(weights=None), (images(1, 128), images(1, 128)), {"num_flow_updates": 2}, loss


def timm_classifier(name: str, size: int = 64, **configuration: Any) -> Made:
    """A classifier of timm's by the name that timm gives it."""
    import timm

    module = timm.create_model(name, pretrained=False, num_classes=10, **configuration)
    return module, (images(2, size),), {}, class_scores


for _name, _domain, _configuration in [
    ("vit_tiny_patch16_224", "vit", {"img_size": 64, "depth": 2, "drop_path_rate": 0.1, "proj_drop_rate": 0.1}),
    ("efficientnet_lite0", "cnn", {}),
    ("mobilenetv4_conv_small", "cnn", {}),
    ("nf_regnet_b0", "cnn", {}),
    ("levit_128s", "vit", {"size": 224}),
    ("xcit_nano_12_p16_224", "vit", {"depth": 2}),
    ("poolformer_s12", "vit", {}),
    ("fastvit_t8", "vit", {}),
    ("hrnet_w18_small", "cnn", {}),
    ("maxvit_nano_rw_256", "vit", {"img_size": 64, "depths": (1, 1, 1, 1), "embed_dim": (32, 64, 96, 128)}),
]:
    register(f"timm_{_name}", "timm", _domain)(lambda name=_name, more=_configuration: timm_classifier(name, **more))


@register("timm_mlp_mixer", "timm", "mlp")
def mlp_mixer() -> Made:
    from timm.models.mlp_mixer import MlpMixer

    module = MlpMixer(img_size=64, patch_size=16, num_blocks=2, embed_dim=128, num_classes=10, drop_path_rate=0.1)
    return module, (images(),), {}, class_scores


def segmentation(architecture: str) -> Made:
    """A net of segmentation_models_pytorch, with its Dice loss."""
    import segmentation_models_pytorch as smp

    dice: Loss = smp.losses.DiceLoss("multiclass")
    module = getattr(smp, architecture)("resnet18", encoder_weights=None, classes=3)
    return module, (images(),), {}, lambda output: dice(output, counted_through(output[:, 0], 3))  # type: ignore[call-arg]


for _name in ("Unet", "DeepLabV3Plus", "UPerNet"):
    register(f"smp_{_name.lower()}", "segmentation_models_pytorch", "segmentation")(
        lambda name=_name: segmentation(name)
    )


@register("vp_cvt", "vit_pytorch", "vit")
def cvt() -> Made:
    from vit_pytorch.cvt import CvT

    stages = {"s1_emb_dim": 16, "s1_depth": 1, "s2_emb_dim": 32, "s2_depth": 1, "s2_heads": 2}
    stages |= {"s3_emb_dim": 64, "s3_depth": 1, "s3_heads": 2}
    return CvT(num_classes=10, dropout=0.1, **stages), (images(),), {}, class_scores


@register("vp_crossformer", "vit_pytorch", "vit")
def crossformer() -> Made:
    from vit_pytorch.crossformer import CrossFormer

    module = CrossFormer(
        num_classes=10,
        dim=(32, 64, 64, 64),
        depth=(1, 1, 1, 1),
        global_window_size=(4, 2, 2, 1),
        local_window_size=4,
        attn_dropout=0.1,
        ff_dropout=0.1,
    )
    return module, (images(2, 128),), {}, class_scores


@register("monai_unet3d", "monai", "medical")
def unet3d() -> Made:
    from monai.losses.dice import DiceCELoss
    from monai.networks.nets.unet import UNet

    dice = DiceCELoss(to_onehot_y=True, softmax=True)
    module = UNet(3, 1, 2, (8, 16, 32), (2, 2), num_res_units=1)
    return module, (torch.randn(1, 1, 16, 16, 16),), {}, lambda output: dice(output, counted_through(output[:, :1], 2))


@register("monai_swinunetr", "monai", "medical")
def swinunetr() -> Made:
    from monai.networks.nets.swin_unetr import SwinUNETR

    module = SwinUNETR(
        in_channels=1,
        out_channels=2,
        feature_size=12,
        spatial_dims=2,
        depths=(1, 1, 1, 1),
        num_heads=(1, 2, 2, 2),
    )
    return module, (torch.randn(1, 1, 64, 64),), {}, class_scores


@register("hf_deformable_detr", "transformers", "detection")
def deformable_detr() -> Made:
    import transformers

    backbone: dict[str, Any] = {
        "embedding_size": 16,
        "hidden_sizes": [16, 32, 48],
        "depths": [1, 1, 1],
        "layer_type": "basic",
        "out_features": ["stage2", "stage3"],
    }
    own_backbone: dict[str, Any] = {
        "use_timm_backbone": False,
        "use_pretrained_backbone": False,
        "backbone": None,
        "backbone_config": transformers.ResNetConfig(**backbone),
    }
    sizes: dict[str, Any] = {
        "d_model": 32,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
        "num_queries": 8,
        "num_labels": 4,
        "num_feature_levels": 3,
    }
    config = transformers.DeformableDetrConfig(disable_custom_kernels=True, **own_backbone, **sizes)
    module = transformers.DeformableDetrForObjectDetection(config)

    def loss(output: Any) -> torch.Tensor:
        return last_scores(output.logits) + output.pred_boxes.mean()

    return module, (), {"pixel_values": images()}, loss
