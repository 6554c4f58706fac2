"""Models to prune, by name: a function that makes each with random weights, and a batch for it."""

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from homemade import MODELS as HOMEMADE
from torch import Tensor, nn

from ldrf.cli.vision import import_vision

NAMES = Path(__file__).with_name("coverage_models.txt")
# Models of timm that Torch-Pruning fails on; they are taken whole, others with at most two equal blocks in a row.
WHOLE = """
    skresnet18 res2net50_26w_4s cspresnet50 mixnet_s dpn68 nfnet_f0 poolformer_s12 caformer_s18 inception_next_tiny
    edgenext_xx_small fastvit_t8 levit_128 swin_tiny_patch4_window7_224 pvt_v2_b0 coat_tiny xcit_tiny_12_p16_224
    mixer_s32_224 resmlp_12_224 gmlp_s16_224 cait_xxs24_224 efficientformer_l1 ecaresnet26t rexnet_100
    maxvit_tiny_tf_224 focalnet_tiny_srf
"""
Made = tuple[nn.Module, Any]


def catalogue() -> dict[str, Callable[[], Made]]:
    """Every model by name, as a function that makes it and a batch for it."""
    makers = {"torchvision": _torchvision, "segmentation": _segmentation, "detection": _backbone, "timm": _timm}
    models: dict[str, Callable[[], Made]] = {f"home/{n}": partial(_homemade, n) for n in HOMEMADE}
    for name in NAMES.read_text().split():
        library, _, rest = name.partition("/")
        models[name] = partial(makers[library], rest)
    models |= {f"ultralytics/{n}": partial(_ultralytics, n) for n in ULTRALYTICS.split()}
    models |= {f"smp/{n}": partial(_smp, n) for n in SMP.split()}
    models |= {f"diffusers/{n}": made for n, made in DIFFUSERS.items()}
    models |= {f"video/{n}": partial(_video, n) for n in VIDEO.split()}
    return models | {f"hf/{n}": partial(_huggingface, n) for n in HUGGINGFACE}


# Built from the files of the PyPI package ultralytics; without it these rows fail with an ImportError.
ULTRALYTICS = """
    yolov5nu yolov8n yolov8s yolov8n-seg yolov8n-pose yolov8n-cls yolov9t yolov10n yolo11n yolo12n rtdetr-l
"""


def _ultralytics(name: str) -> Made:
    import_vision("torchvision")
    import ultralytics  # pyright: ignore[reportMissingImports]

    kind = ultralytics.RTDETR if name.startswith("rtdetr") else ultralytics.YOLO
    return kind(f"{name}.yaml").model, torch.rand(3, 3, 128, 128)


# Decoders of the PyPI package segmentation_models_pytorch, each on an encoder of its own.
SMP = """
    Unet-resnet18 Unet-mobilenet_v2 UnetPlusPlus-resnet18 FPN-resnet18 FPN-efficientnet-b0 DeepLabV3Plus-resnet18
    DeepLabV3Plus-mobilenet_v2 MAnet-resnet18 Linknet-resnet18 PSPNet-resnet18 PAN-resnet18 UPerNet-resnet18
    Segformer-resnet18
"""


def _smp(name: str) -> Made:
    import_vision("torchvision")
    import segmentation_models_pytorch  # pyright: ignore[reportMissingImports]

    kind, _, encoder = name.partition("-")
    made = getattr(segmentation_models_pytorch, kind)(encoder_name=encoder, encoder_weights=None, classes=5)
    return made, _images(3, 128)


def _unet2d(*down: str, **options: Any) -> Callable[[], Made]:
    """A UNet2DModel of the PyPI package diffusers, with these blocks on its way down and their kin on its way up."""

    def made() -> Made:
        import_vision("torchvision")
        import diffusers  # pyright: ignore[reportMissingImports]

        widths = (32, 64, 64)[: len(down)]
        up = tuple(block.replace("Down", "Up") for block in reversed(down))
        model = diffusers.UNet2DModel(sample_size=32, block_out_channels=widths, layers_per_block=1, norm_num_groups=8,
                                      down_block_types=down, up_block_types=up, **options)  # fmt: skip
        return model, {"sample": _images(4, 32), "timestep": torch.randint(0, 1000, (4,))}

    return made


DIFFUSERS: dict[str, Callable[[], Made]] = {
    "unet2d": _unet2d("DownBlock2D", "DownBlock2D"),
    "unet2d-attention": _unet2d("DownBlock2D", "AttnDownBlock2D", "DownBlock2D", attention_head_dim=8),
}


def _images(rows: int, size: int, channels: int = 3) -> Tensor:
    return torch.randn(rows, channels, size, size)


def _homemade(name: str) -> Made:
    kind, shape = HOMEMADE[name]
    return kind(), torch.randint(0, 100, (8, *shape)) if name == "language" else torch.randn(8, *shape)


def _torchvision(name: str) -> Made:
    models = import_vision("torchvision").models
    extra = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    size = 256 if name == "swin_v2_t" else 224 if name in ("vit_b_16", "swin_t", "maxvit_t") else 96
    return models.get_model(name, weights=None, **extra), _images(3, size)


def _segmentation(name: str) -> Made:
    models = import_vision("torchvision").models.segmentation
    return getattr(models, name)(weights=None, weights_backbone=None), _images(3, 96)


VIDEO = "r3d_18 mc3_18 r2plus1d_18 swin3d_t"


def _video(name: str) -> Made:
    models = import_vision("torchvision").models.video
    return getattr(models, name)(weights=None), torch.randn(3, 3, 8, 64, 64)


def _backbone(name: str) -> Made:
    """The network of a detector that works on whole images: everything before boxes are proposed."""
    models = import_vision("torchvision").models.detection
    size = 300 if name == "ssd300_vgg16" else 160
    return getattr(models, name)(weights=None, weights_backbone=None).backbone, _images(3, size)


def _timm(name: str) -> Made:
    model = import_vision("timm").create_model(name, pretrained=False).eval()
    stated = model.default_cfg["input_size"][-1]
    images = _images(3, 96 if _takes(model, 96) else stated)
    return (model if name in WHOLE.split() else shallow(model, images)), images


@torch.no_grad()
def _takes(model: nn.Module, size: int) -> bool:
    try:
        model(_images(1, size))
    except Exception:
        return False
    return True


def shallow(model: nn.Module, images: Tensor) -> nn.Module:
    """The model with at most two equal blocks in a row, or as it is where its forward needs them all."""
    copied = copy.deepcopy(model)
    for module in list(copied.modules()):
        if isinstance(module, nn.Sequential | nn.ModuleList):
            alike = [_shapes(child) for child in module]
            for i in reversed(range(2, len(alike))):
                if alike[i] and alike[i] == alike[i - 1] == alike[i - 2]:
                    del module[i]
    try:
        with torch.no_grad():
            return copied if copied(images[:1]).shape == model(images[:1]).shape else model
    except Exception:
        return model


def _shapes(module: nn.Module) -> list[tuple[str, torch.Size]]:
    return [(name, p.shape) for name, p in module.named_parameters()]


def _huggingface(name: str) -> Made:
    import_vision("torchvision")
    return HUGGINGFACE[name]()


def _hf(kind: str, config: str, batch: Callable[[], Any], **options: Any) -> Callable[[], Made]:
    def made() -> Made:
        import transformers

        model = getattr(transformers, kind)(getattr(transformers, config)(**options))
        return model, batch()

    return made


def _words(rows: int = 6, length: int = 24) -> dict[str, Tensor]:
    return {
        "input_ids": torch.randint(3, 90, (rows, length)),
        "attention_mask": torch.ones(rows, length, dtype=torch.long),
    }


def _pixels(rows: int = 4, size: int = 64) -> dict[str, Tensor]:
    return {"pixel_values": _images(rows, size)}


SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
WORDS = {**SMALL, "vocab_size": 100}
LLAMA = {**WORDS, "num_key_value_heads": 2}
SEEN = {**SMALL, "image_size": 64, "patch_size": 16}
HUGGINGFACE: dict[str, Callable[[], Made]] = {
    "resnet": _hf("ResNetForImageClassification", "ResNetConfig", _pixels, depths=[1, 1, 1, 1]),
    "vit": _hf("ViTForImageClassification", "ViTConfig", _pixels, image_size=64, **SMALL),
    "deit": _hf("DeiTForImageClassification", "DeiTConfig", _pixels, image_size=64, **SMALL),
    "swin": _hf("SwinForImageClassification", "SwinConfig", _pixels, image_size=64, embed_dim=32, depths=[1, 1],
                num_heads=[2, 4], window_size=4),
    "convnext": _hf("ConvNextForImageClassification", "ConvNextConfig", _pixels, depths=[1, 1, 1, 1],
                    hidden_sizes=[32, 48, 64, 80]),
    "segformer": _hf("SegformerForSemanticSegmentation", "SegformerConfig", _pixels, depths=[1, 1, 1, 1]),
    "bert": _hf("BertForSequenceClassification", "BertConfig", _words, **WORDS),
    "distilbert": _hf("DistilBertForSequenceClassification", "DistilBertConfig", _words, dim=64, n_layers=2, n_heads=4,
                      hidden_dim=128, vocab_size=100),
    "roberta": _hf("RobertaForSequenceClassification", "RobertaConfig", _words, **WORDS),
    "gpt2": _hf("GPT2LMHeadModel", "GPT2Config", _words, n_embd=64, n_layer=2, n_head=4, vocab_size=100),
    "opt": _hf("OPTForCausalLM", "OPTConfig", _words, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
               ffn_dim=128, vocab_size=100, word_embed_proj_dim=64, max_position_embeddings=64),
    "mistral": _hf("MistralForCausalLM", "MistralConfig", _words, **LLAMA),
    "gemma": _hf("GemmaForCausalLM", "GemmaConfig", _words, head_dim=16, **LLAMA),
    "mixtral": _hf("MixtralForCausalLM", "MixtralConfig", _words, num_local_experts=4, num_experts_per_tok=2, **LLAMA),
    "t5": _hf("T5ForConditionalGeneration", "T5Config",
              lambda: {**_words(), "decoder_input_ids": torch.randint(3, 90, (6, 8))}, d_model=64, d_kv=16, d_ff=128,
              num_layers=2, num_heads=4, vocab_size=100),
    "siglip": _hf("SiglipModel", "SiglipConfig", lambda: {"input_ids": _words(4, 16)["input_ids"], **_pixels(4)},
                  text_config={**WORDS, "max_position_embeddings": 16}, vision_config=SEEN),
    "dinov2": _hf("Dinov2ForImageClassification", "Dinov2Config", _pixels, **SEEN),
    "dpt": _hf("DPTForSemanticSegmentation", "DPTConfig", _pixels, backbone_out_indices=[0, 1, 2, 3],
               fusion_hidden_size=32, neck_hidden_sizes=[16, 24, 32, 48], **{**SEEN, "num_hidden_layers": 4}),
    "sam-encoder": _hf("SamVisionModel", "SamVisionConfig", _pixels, mlp_dim=128, output_channels=32, window_size=2,
                       global_attn_indexes=[1], **{k: v for k, v in SEEN.items() if k != "intermediate_size"}),
    "whisper": _hf("WhisperForConditionalGeneration", "WhisperConfig",
                   lambda: {"input_features": torch.randn(4, 20, 100),
                            "decoder_input_ids": torch.randint(3, 90, (4, 8))},
                   d_model=64, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=128, decoder_layers=2,
                   decoder_attention_heads=4, decoder_ffn_dim=128, max_source_positions=50, num_mel_bins=20,
                   max_target_positions=32, vocab_size=100, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                   decoder_start_token_id=1),
    "rt-detr": _hf("RTDetrForObjectDetection", "RTDetrConfig", _pixels, d_model=32, encoder_hidden_dim=32,
                   decoder_in_channels=[32, 32, 32], encoder_layers=1, encoder_ffn_dim=64,
                   encoder_attention_heads=2, decoder_layers=2, decoder_ffn_dim=64,
                   decoder_attention_heads=2, num_queries=10, num_denoising=0, use_pretrained_backbone=False),
    "mask2former": _hf("Mask2FormerForUniversalSegmentation", "Mask2FormerConfig", _pixels, feature_size=32,
                       mask_feature_size=32, hidden_dim=32, encoder_feedforward_dim=64, encoder_layers=1,
                       decoder_layers=2, num_attention_heads=2, dim_feedforward=64, num_queries=5),
    "detr": lambda: _detr(),
    "llama": _hf("LlamaForCausalLM", "LlamaConfig", _words, **LLAMA),
    "qwen2": _hf("Qwen2ForCausalLM", "Qwen2Config", _words, **LLAMA),
    "qwen3": _hf("Qwen3ForCausalLM", "Qwen3Config", _words, head_dim=16, **LLAMA),
    "t5-encoder": _hf("T5EncoderModel", "T5Config", _words, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4,
                      vocab_size=100),
    "whisper-encoder": lambda: _whisper(),
    "clip": _hf("CLIPModel", "CLIPConfig", lambda: {**_words(4, 16), **_pixels(4)},
                text_config={**WORDS, "eos_token_id": 2},
                vision_config={**SMALL, "image_size": 64, "patch_size": 16}),
}  # fmt: skip


def _whisper() -> Made:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(d_model=64, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=128,
                           max_source_positions=50, num_mel_bins=20)  # fmt: skip
    return WhisperEncoder(config), {"input_features": torch.randn(4, 20, 100)}


def _detr() -> Made:
    import transformers

    resnet: Any = transformers.ResNetConfig
    detr: Any = transformers.DetrConfig
    backbone = resnet(depths=[1, 1, 1, 1], embedding_size=16, hidden_sizes=[16, 24, 32, 48], layer_type="basic",
                      out_features=["stage4"])  # fmt: skip
    config = detr(backbone_config=backbone, use_timm_backbone=False, use_pretrained_backbone=False, d_model=32,
                  encoder_layers=2, decoder_layers=2, encoder_ffn_dim=64, decoder_ffn_dim=64,
                  encoder_attention_heads=4, decoder_attention_heads=4, num_queries=6)  # fmt: skip
    return transformers.DetrForObjectDetection(config), _pixels()
