"""What stage 1 hands to stage 2, and that a journal gives back the same."""

import pytest
import torch
from networks import Residual

import ldrf
from ldrf import pipeline


def test_findings_come_back_from_the_journal_as_they_were(prune_known, monkeypatch, tmp_path):
    seen = []
    stage_2 = pipeline.stage_2
    monkeypatch.setattr(pipeline, "stage_2", lambda run, findings: seen.append(findings) or stage_2(run, findings))

    def killed(event: str, data: dict) -> None:
        if event == "unit":
            raise KeyboardInterrupt

    asked = {"speedup": 1.3, "config": ldrf.PruneConfig(solver="closed-form", energy=0.1)}
    with pytest.raises(KeyboardInterrupt):
        prune_known(Residual, **asked, out=tmp_path / "run", on_event=killed)
    prune_known(Residual, **asked, out=tmp_path / "run", resume=True)
    first, second = seen
    assert first.plan.widths == second.plan.widths and first.plan.curves_of == second.plan.curves_of == "outputs"
    for mine, other in (
        (first.plan.curves, second.plan.curves),
        (first.metrics, second.metrics),
        ({n: r.order for n, r in first.removals.items()}, {n: r.order for n, r in second.removals.items()}),
        ({n: s.zeros for n, s in first.surveys.items()}, {n: s.zeros for n, s in second.surveys.items()}),
    ):
        assert mine.keys() == other.keys() and all(torch.equal(mine[name], other[name]) for name in mine)
    assert all(s.moments == [] for s in first.surveys.values()), "Gram matrices are done with"
