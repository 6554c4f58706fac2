"""Slim models of transformers are saved and loaded in one line; those of uniform widths load without ldrf."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false

import json
from contextlib import suppress

import pytest
import torch
from torch import Tensor, nn

from ldrf.cli.vision import import_vision
from ldrf.errors import LdrfError
from ldrf.integrations.huggingface import equal_widths, from_pretrained, plain_config, save_pretrained
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


def test_the_same_layer_of_every_block_gets_the_smallest_of_its_widths():
    widths = {"layers.0.up": 8, "layers.0.down": 6, "layers.11.up": 5, "head": 7}
    assert equal_widths(widths) == {"layers.0.up": 5, "layers.0.down": 6, "layers.11.up": 5, "head": 7}
