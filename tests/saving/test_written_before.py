"""What version 0.1.0 wrote before the modules moved into folders is still read: a result, a journal, a tuning state.

``given.safetensors`` has the dense weights, the images, and the outputs of the slim and of the fine-tuned network then.
"""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from networks import Chain
from safetensors.torch import load_file

import ldrf
from ldrf.errors import LdrfError
from ldrf.files.result_folders import JOURNAL, LEARNED, RECORD, SETTINGS
from ldrf.report import write_report

THEN = Path(__file__).parent / "written_before"
GIVEN = load_file(THEN / "given.safetensors")
IMAGES = GIVEN.pop("images")
OUTPUTS, TUNED = GIVEN.pop("outputs"), GIVEN.pop("tuned outputs")
WIDTHS, CONFIG = {"conv1": 3, "conv2": 4}, ldrf.PruneConfig(steps=6, joint_steps=12, energy=0.1)
TUNING = ldrf.FinetuneConfig(epochs=4, batch=4, ema=0.5)


@pytest.fixture
def dense() -> Chain:
    model = Chain(6, 8)
    model.load_state_dict(GIVEN)
    return model.eval()


@pytest.fixture
def unfinished(tmp_path) -> Path:
    shutil.copytree(THEN / "unfinished", tmp_path / "out")
    return tmp_path / "out"


@torch.no_grad()
def distance(model: torch.nn.Module, wanted: torch.Tensor) -> float:
    return float((model.eval()(IMAGES) - wanted).abs().max() / wanted.abs().max())


def test_a_result_is_loaded_with_its_outputs():
    slim = ldrf.load(THEN / "result", Chain(6, 8))
    assert [len(slim.get_parameter(f"{name}.weight")) for name in ("conv1", "conv2")] == [3, 4]
    assert distance(slim, OUTPUTS) < 1e-6


def test_a_result_has_its_page(tmp_path):
    shutil.copytree(THEN / "result", tmp_path / "result")
    assert "conv2" in write_report([tmp_path / "result"]).read_text()


@pytest.mark.slow
def test_an_unfinished_run_is_resumed_where_its_settings_are_those_of_now(unfinished, dense):
    path = unfinished / JOURNAL / SETTINGS
    noted = json.loads(path.read_text())
    noted["settings"]["versions"] |= {"torch": torch.__version__, "ldrf": ldrf.__version__}
    noted["settings"]["config"] = asdict(CONFIG.filled()) | noted["settings"]["config"]  # some settings came later
    path.write_text(json.dumps(noted))
    result = ldrf.prune(dense, [IMAGES], widths=WIDTHS, config=CONFIG, out=unfinished, resume=True)
    assert distance(result.model, OUTPUTS) < 1e-4
    assert distance(ldrf.load(unfinished, Chain(6, 8)), OUTPUTS) < 1e-4
    then = json.loads((THEN / "result" / RECORD).read_text())["history"]
    assert [unit.name for unit in result.history] == [unit["name"] for unit in then]
    assert result.history[0].error == then[0]["error"], "the first unit's solution is that of the journal"


@pytest.mark.slow
def test_an_unfinished_run_with_fewer_settings_is_refused_in_one_sentence(unfinished, dense):
    with pytest.raises(
        LdrfError, match=r"other settings: .*multiple is 8 here and was not given.* in the folder's run"
    ):
        ldrf.prune(dense, [IMAGES], widths=WIDTHS, config=CONFIG, out=unfinished, resume=True)
    assert (unfinished / JOURNAL / LEARNED).is_file(), "and it is kept for the version that wrote it"


def test_a_state_of_fine_tuning_is_taken_over(tmp_path, dense):
    shutil.copy(THEN / "tuning.pt", tmp_path / "tuning.pt")
    slim, events = ldrf.load(THEN / "result", Chain(6, 8)), []
    slim.get_parameter("fc.weight").data *= 0.5  # so that there was something to learn
    tuned = ldrf.finetune(
        slim, dense, [IMAGES], config=TUNING, resume=tmp_path / "tuning.pt", on_event=lambda e, _: events.append(e)
    )
    assert events == ["done"] and len(tuned.epochs) == TUNING.epochs, "nothing is trained again"
    assert distance(tuned.model, TUNED) < 1e-6 < 0.1 < distance(slim, TUNED)
