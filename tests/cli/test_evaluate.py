"""``ldrf evaluate`` counts and measures."""

import json

from ldrf.cli import main


def test_evaluate_prints_accuracy_and_cost(plugin, capsys):
    argv = ["evaluate", "plugin.py:net", "--data", "plugin.py:data"]
    assert main([*argv, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    conv = 36 * 8 * 27 + 16 * 8 * 72 + 128 * 4
    assert printed["macs"] == conv and printed["images"] == 64 and printed["top5"] == 100.0
    assert printed["parameters"] == 8 * 27 + 8 + 8 * 72 + 8 + 128 * 4 + 4
    assert main([*argv, "--images", "20"]) == 0
    out = capsys.readouterr().out
    assert "top-1" in out and f"{conv:,}" in out
