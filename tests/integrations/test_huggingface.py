"""Slim models of transformers are saved and loaded in one line; those of uniform widths load without ldrf."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false

import json
from contextlib import suppress

import pytest
import torch
from torch import Tensor, nn

import ldrf
from ldrf.cli.vision import import_vision
from ldrf.errors import LdrfError
from ldrf.integrations.huggingface import from_pretrained, plain_config, save_pretrained
from ldrf.units.module_surgery import write_tensors

with suppress(LdrfError):  # transformers imports torchvision where there is one, even if built for another torch
    import_vision("torchvision")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # transformers' own

SMALL = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 60,
    "max_position_embeddings": 32, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip


def llama() -> nn.Module:
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL, num_key_value_heads=2)).eval()


def words(rows: int = 8) -> dict[str, Tensor]:
    return {"input_ids": torch.randint(3, 50, (rows, 8), generator=torch.Generator().manual_seed(0))}


def cut(model: nn.Module, widths: tuple[int, int]) -> nn.Module:
    """The model with only the first neurons of each inner layer."""
    for i, width in enumerate(widths):
        path = f"model.layers.{i}.mlp"
        mlp = model.get_submodule(path)
        write_tensors(
            model,
            {
                f"{path}.gate_proj.weight": mlp.gate_proj.weight[:width],
                f"{path}.up_proj.weight": mlp.up_proj.weight[:width],
                f"{path}.down_proj.weight": mlp.down_proj.weight[:, :width],
            },
        )
    return model


@pytest.mark.slow
def test_a_model_with_other_widths_in_every_layer_comes_back_by_ldrf(tmp_path):
    slim = cut(llama(), (24, 40))
    assert plain_config(slim) is None and not save_pretrained(slim, tmp_path / "slim")
    loaded = from_pretrained(tmp_path / "slim")
    assert torch.equal(loaded(**words()).logits, slim(**words()).logits) and not loaded.training
    assert loaded.generate(words(1)["input_ids"], max_new_tokens=2, do_sample=False).shape[1] > 8


def test_a_model_of_uniform_widths_loads_in_plain_transformers(tmp_path):
    slim = cut(llama(), (32, 32))
    assert save_pretrained(slim, tmp_path / "slim")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "slim")
    assert loaded.config.intermediate_size == 32
    assert torch.equal(loaded.eval()(**words()).logits, slim(**words()).logits)
    assert torch.equal(from_pretrained(tmp_path / "slim")(**words()).logits, slim(**words()).logits)


def test_what_is_no_model_of_transformers_or_no_folder_of_one_is_refused(tmp_path):
    with pytest.raises(LdrfError, match="Got a Linear: use ldrf.save"):
        save_pretrained(nn.Linear(2, 2), tmp_path)
    with pytest.raises(LdrfError, match="holds no readable config.json"):
        from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["NoSuchModel"]}))
    with pytest.raises(LdrfError, match="holds a NoSuchModel, which transformers lacks"):
        from_pretrained(tmp_path)


def opt() -> nn.Module:
    given = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 48, "vocab_size": 60}
    ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "max_position_embeddings": 32}
    return transformers.OPTForCausalLM(transformers.OPTConfig(**given, **ends, word_embed_proj_dim=32))


def gpt2() -> nn.Module:
    given = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 60, "n_positions": 32}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**given, bos_token_id=1, eos_token_id=2))


def vit() -> nn.Module:
    given = {name: SMALL[name] for name in list(SMALL)[:4]}
    return transformers.ViTForImageClassification(transformers.ViTConfig(**given, image_size=16, patch_size=8))


MODELS = {
    "llama": llama,
    "qwen2": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**SMALL, num_key_value_heads=2)),
    "qwen3": lambda: transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(**SMALL, num_key_value_heads=2, head_dim=8)
    ),
    "bert": lambda: transformers.BertForMaskedLM(transformers.BertConfig(**SMALL)),
    "vit": vit,
    "opt": opt,
    "gpt2": gpt2,
}
# Classes whose config can say how many heads there are and how wide each is; of the others attention is left alone.
SAY_HEADS = {"llama": 1.6, "qwen2": 1.6, "qwen3": 1.6, "vit": 1.6}
# Widths that the config says afterwards, beside those of heads.
FIELD = {"opt": "ffn_dim", "gpt2": "n_inner"}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_uniform_model_loads_in_plain_transformers_and_generates(name, tmp_path):
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    pixels = {"pixel_values": torch.randn(16, 3, 16, 16)}
    batch = pixels if name == "vit" else words(16)
    config = ldrf.PruneConfig(solver="closed-form", uniform=True, energy=0.05)
    ignore = () if name in SAY_HEADS else ("*att*",)
    result = ldrf.prune(model, [batch], speedup=SAY_HEADS.get(name, 1.15), config=config, ignore=ignore)
    assert save_pretrained(result.model, tmp_path / "slim")
    loaded = type(model).from_pretrained(tmp_path / "slim").eval()
    assert torch.allclose(loaded(**batch).logits, result.model(**batch).logits, atol=1e-5)
    inner = {w for unit, w in result.widths.items() if any(k in unit for k in ("mlp", "fc", "intermediate"))}
    assert inner == {getattr(loaded.config, FIELD.get(name, "intermediate_size"))}
    if loaded.can_generate():
        start = words(1)["input_ids"]
        grown = [m.generate(start, max_new_tokens=3, do_sample=False) for m in (loaded, result.model)]
        assert torch.equal(*grown) and grown[0].shape[1] > 8
