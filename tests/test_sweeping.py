"""``sweep``: many slim networks from one survey, each as ``prune`` would make it."""

import pytest
import torch
from networks import Chain, make

import ldrf
from ldrf.errors import LdrfError
from ldrf.sweeping import read_asked

CONFIG = ldrf.PruneConfig(solver="closed-form", energy=0.05, multiple=1)


@pytest.fixture
def sweep(network, monkeypatch):
    """``sweep(...)``: of a Chain that is traced already."""
    monkeypatch.setattr("ldrf.run.read_network", lambda *_: network(Chain))
    return lambda **given: list(ldrf.sweep(network(Chain).model, [], config=CONFIG, **given))


@pytest.mark.slow
def test_every_point_is_what_prune_gives(sweep, prune_known):
    points = sweep(speedup=[2.0, 1.5], params=[1.5])
    assert [point.name for point in points] == ["speedup-1.5x", "speedup-2x", "params-1.5x"]
    for point, target in zip(points, ({"speedup": 1.5}, {"speedup": 2.0}, {"params": 1.5}), strict=True):
        alone = prune_known(Chain, **target, config=CONFIG)
        assert point.result is not None and point.result.widths == alone.widths and point.drop is not None
        for name, tensor in alone.model.state_dict().items():
            assert torch.equal(point.result.model.state_dict()[name], tensor)


def test_the_survey_is_made_once(sweep, monkeypatch):
    import ldrf.pipeline as pipeline

    calls, real = [], pipeline.survey
    monkeypatch.setattr(pipeline, "survey", lambda *a: calls.append(1) or real(*a))
    sweep(speedup=[1.3, 1.5, 2.0])
    assert calls == [1]


def test_a_target_out_of_reach_is_told_and_the_others_go_on(sweep):
    points = sweep(speedup=[1.5, 1e5])
    assert points[0].result is not None and points[1].result is None and "out of reach" in points[1].reason


def test_results_are_saved_and_a_second_run_passes_them_over(sweep, tmp_path):
    sweep(speedup=[1.5], out=tmp_path / "all")
    assert ldrf.load(tmp_path / "all" / "speedup-1.5x", make(Chain)) is not None
    with pytest.raises(LdrfError, match="holds an earlier result: go on with resume=True"):
        sweep(speedup=[1.5, 2.0], out=tmp_path / "all")
    again = sweep(speedup=[1.5, 2.0], out=tmp_path / "all", resume=True)
    assert again[0].result is None and again[0].reason.startswith("done before") and again[1].result is not None
    assert sorted(p.name for p in (tmp_path / "all").iterdir()) == ["speedup-1.5x", "speedup-2x"]


def test_names_are_good_for_folders_and_nothing_to_do_is_told():
    asked = read_asked((), (), [2.0, "4 ms"], [1.0], ldrf.Deployment("torch"))
    assert [one.name for one in asked] == ["latency-2x", "latency-4ms", "max-drop-1"]
    with pytest.raises(LdrfError, match="A sweep needs targets"):
        read_asked((), (), (), (), None)


def test_wrong_arguments_are_told_before_the_first_point_is_asked_for():
    with pytest.raises(LdrfError, match="'evaluate' must be a function"):
        ldrf.sweep(make(Chain), [], speedup=[2.0], evaluate="top1")  # pyright: ignore[reportArgumentType]
