"""One callback hears everything, in order and ready for JSON; without it nothing is said."""

import json
import logging

import pytest
from networks import Chain

import ldrf
from ldrf.events import teller
from ldrf.integrations.tensorboard import tensorboard

FAST = ldrf.PruneConfig(solver="closed-form", energy=0.1)


@pytest.fixture(scope="module")
def run(prune_known):
    """A pruning run with what its callback heard."""
    heard = []
    result = prune_known(
        Chain, widths={"conv1": 5, "conv2": 9}, config=FAST, on_event=lambda *event: heard.append(event)
    )
    return result, heard


def test_pruning_tells_its_stages_in_order(run):
    result, heard = run
    assert [event for event, _ in heard] == ["traced", "planned", "unit", "unit", "recomposed", "done"]
    told = dict(heard)
    assert told["traced"] == {"units": ["conv1", "conv2"], "skipped": [s.name for s in result.skipped]}
    assert told["planned"] == {"widths": result.widths, "full_widths": result.full_widths}
    assert told["recomposed"]["seconds"] == result.seconds
    assert told["done"] == {"speedup": result.speedup}


def test_unit_events_are_the_history(run):
    result, heard = run
    units = [data for event, data in heard if event == "unit"]
    assert [(u["index"], u["count"], u["name"], u["width"]) for u in units] == [(0, 2, "conv1", 5), (1, 2, "conv2", 9)]
    assert [u["error"] for u in units] == [h.error for h in result.history]


def test_all_data_is_ready_for_json(run):
    for _, data in run[1]:
        assert json.loads(json.dumps(data)) == data


def test_logging_is_silent_unless_asked_for(caplog, capsys):
    tell = teller(None)
    tell("unit", name="conv1")
    assert capsys.readouterr() == ("", "")
    with caplog.at_level(logging.INFO, "ldrf"):
        tell("unit", name="conv1")
    assert caplog.messages == ["unit: {'name': 'conv1'}"]


def test_tensorboard_holds_the_curves(run, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result, heard = run
    write = tensorboard(tmp_path)
    for event, data in heard:
        write(event, data)
    for epoch, loss in ((1, 0.5), (2, float("nan"))):
        write("epoch", {"epoch": epoch, "loss": loss, "score": 0.9, "distance": 0.2, "rate": 0.1})
    curves = EventAccumulator(str(tmp_path)).Reload()
    errors = curves.Scalars("prune/error after reconstruction")
    assert [e.value for e in errors] == pytest.approx([h.error for h in result.history])
    assert [e.step for e in curves.Scalars("finetune/loss")] == [1], "what is not a number is left out"
    assert [e.step for e in curves.Scalars("finetune/score")] == [1, 2]
    assert b"| conv1 | 5 of 12 |" in curves.Tensors("prune/widths/text_summary")[0].tensor_proto.string_val[0]


def test_tensorboard_missing_says_how_to_get_it(monkeypatch, tmp_path):
    import sys

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ldrf.LdrfError, match=r"pip install 'ldrf\[tensorboard\]'"):
        tensorboard(tmp_path)
