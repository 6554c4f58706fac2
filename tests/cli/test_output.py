"""What commands print: one JSON object or tables, in which names of layers are only text."""

import json

import pytest

from ldrf.cli import main
from ldrf.cli.output import Report, comparison, facts, show


def test_a_report_is_shown_as_json_or_as_its_parts(capsys):
    report = Report(
        {"top1": 90.5}, ["a line", facts({"top-1": "90.50 %"}), comparison({"MACs": ("300", "100", "3.00x less")})]
    )
    show(report, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"top1": 90.5}
    show(report, as_json=False)
    shown = capsys.readouterr().out
    assert shown.startswith("a line\n") and "90.50 %" in shown and "3.00x less" in shown and "dense" in shown


@pytest.mark.slow
def test_names_do_not_steer_the_terminal(tmp_path, monkeypatch, capsys):
    """Escape sequences are spelled out, and what rich would take for colours or pictures is printed as it is."""
    names = ["a\x1b[2J\x1b]0;title\x07", "[red]b[/red]", ":bomb:", "\u202ee", "<script>"]
    layers = "".join(f"(({name!r}), nn.Conv2d(4, 4, 1, bias=False)), (({name + 'r'!r}), nn.ReLU()), " for name in names)
    (tmp_path / "odd.py").write_text(
        "from collections import OrderedDict\nfrom torch import nn\n"
        f"def net(): return nn.Sequential(OrderedDict([('e', nn.Conv2d(3, 4, 1)), {layers}('z', nn.Conv2d(4, 4, 1))]))"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["inspect", "odd.py:net", "--shape", "3,6,6"]) == 0
    shown = capsys.readouterr().out
    for spelled in (r"a\x1b[2J\x1b]0;title\x07", "[red]b[/red]", ":bomb:", r"\u202ee", "<script>"):
        assert spelled in shown
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert main(["evaluate", "no\x1b[31mfolder", "--data", "sample"]) == 1
    assert r"no\x1b[31mfolder" in capsys.readouterr().err
    assert main(["inspect", "odd.py:net", "--shape", "3,6,6", "--json"]) == 0
    assert names[0] in json.loads(capsys.readouterr().out)["units"][1]["name"]
