"""``ldrf sweep``: targets on the command line, a table, and one page about all of them."""

import json

import pytest
from networks import NET

from ldrf.cli import main


@pytest.mark.slow
def test_one_page_and_a_point_to_pick(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plugin.py").write_text(NET)
    argv = ["sweep", "plugin.py:net", "--data", "plugin.py:data", "--out", "all", "--images", "32", "--multiple", "1"]
    argv += ["--solver", "closed-form", "--energy", "0.1"]
    assert main([*argv, "--speedup", "1.3,1.6", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [point["folder"] for point in told["points"]] == ["all/speedup-1.3x", "all/speedup-1.6x"]
    assert [point["pick"] for point in told["points"]].count(True) == 1
    assert all(point["speedup"] >= 1.29 and point["agreement"] is not None for point in told["points"])
    page = (tmp_path / "all" / "report.html").read_text()
    assert page.count('class="ring"') == 2 and "dense time / slim time" in page and "<strong>pick</strong>" in page
    assert main([*argv, "--speedup", "1.3,1.6,1.9"]) == 1 and "--resume" in capsys.readouterr().err
    assert main([*argv, "--speedup", "1.3,1.6,1.9", "--resume"]) == 0
    out = capsys.readouterr().out
    assert "speedup-1.3x: done before" in out and "speedup-1.9x" in out and "see all/report.html" in out


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "Say what to reach with --speedup, --params, --latency or --max-drop"),
        (["--speedup", "2,x"], "--speedup takes numbers with commas between them"),
        (["--speedup", "2", "--runtime", "torch"], "go with --latency or --max-drop"),
    ],
)
def test_wrong_arguments_are_told(given, words, capsys):
    assert main(["sweep", "vgg9", "--data", "sample", "--out", "nowhere", *given]) == 2
    assert words in capsys.readouterr().err
