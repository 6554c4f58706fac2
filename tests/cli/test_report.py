"""``ldrf report``: one page for one folder or several."""

import json
from pathlib import Path

import pytest
from results_on_disk import write_result

from ldrf.cli import main


def test_report_says_where_the_page_is(tmp_path, capsys):
    folder = write_result(tmp_path / "runs" / "one")
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr().out.startswith(f"Wrote {folder / 'report.html'} (")
    assert main(["report", str(folder), "--json", "--out", str(tmp_path / "page.html")]) == 0
    printed = json.loads(capsys.readouterr().out)
    page = tmp_path / "page.html"
    assert printed == {"report": str(page), "bytes": page.stat().st_size, "runs": [str(folder)], "passed_over": []}


def test_report_takes_what_a_pattern_catches(tmp_path, capsys):
    runs = tmp_path / "runs"
    for name in ("one", "two"):
        write_result(runs / name)
    (runs / "training").mkdir()
    for _ in range(2):  # the second time the page itself is caught too
        assert main(["report", *map(str, sorted(runs.iterdir())), str(runs / "one") + "/", "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert printed["report"] == str(runs / "report.html") and len(printed["runs"]) == 2
    assert printed["passed_over"] == [str(runs / "report.html"), str(runs / "training")]
    assert "2 runs" in (runs / "report.html").read_text()


@pytest.mark.parametrize(
    ("names", "code", "words"),
    [
        ([], 2, "Name at least one result folder"),
        (["empty"], 1, "'empty' is not a result folder: it has no ldrf.json"),
        (["nowhere", "empty"], 1, "'nowhere' is not a result folder"),
        (["one", "--out", "page.txt"], 1, "must be a file that ends in .html. Got 'page.txt' instead"),
        (["one", "broken"], 1, "'broken/ldrf.json' is damaged"),
    ],
)
def test_report_names_what_is_wrong(tmp_path, monkeypatch, capsys, names, code, words):
    monkeypatch.chdir(tmp_path)
    write_result(Path("one"))
    for name in ("empty", "broken"):
        Path(name).mkdir()
    Path("broken/ldrf.json").write_text("{")
    assert main(["report", *names]) == code
    captured = capsys.readouterr()
    assert words in captured.err and captured.out == ""
    assert not list(tmp_path.rglob("*.html"))
