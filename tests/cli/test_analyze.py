"""``ldrf analyze``: ranks at an energy that is given or searched."""

import json

import ldrf
from ldrf.cli import main


def test_analyze_passes_energy_and_images_on(plugin, monkeypatch, capsys):
    calls = []

    class Analysis:
        def as_dict(self):
            return {"ranks": {"0": 3}}

        def __str__(self):
            return "a table of ranks"

    def analyze(model, batches, energy):
        calls.append((sum(len(x) for x, _ in batches), energy))
        return Analysis()

    monkeypatch.setattr(ldrf, "analyze", analyze)
    argv = ["analyze", "plugin.py:net", "--data", "plugin.py:data", "--images", "20"]
    assert main([*argv, "--energy", "0.5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"ranks": {"0": 3}}
    assert main(argv) == 0
    assert capsys.readouterr().out == "a table of ranks\n"
    assert calls == [(20, 0.5), (20, 0.65)]


def test_analyze_can_search_the_energy(plugin, capsys):
    argv = ["analyze", "plugin.py:net", "--data", "plugin.py:data", "--search", "--json"]
    assert main(argv) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["search"]["measure"] == "accuracy"
    assert printed["energy"] == printed["search"]["energy"] == printed["search"]["trials"][-1]["energy"]
