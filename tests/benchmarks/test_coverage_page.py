"""The page of models tried says what the results say."""

import json
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from coverage_page import page, read_results  # noqa: E402  # pyright: ignore[reportMissingImports]

OURS = [
    {"model": "a", "status": "hang", "reason": "took more than 240 seconds"},
    {
        "model": "a",
        "status": "ok",
        "reason": "",
        "share": 0.5,
        "units": 3,
        "coupled": 0,
        "reachable": 4,
        "speedup": 1.5,
    },
    {
        "model": "b",
        "status": "ok",
        "reason": "",
        "share": 0.9,
        "units": 1,
        "calls": 40,
        "coupled": 1,
        "reachable": 2,
        "speedup": 1.5,
    },
    {"model": "c", "status": "refused", "reason": "it is `one` layer"},
]
THEIRS = [
    {"model": "a", "status": "failed", "reason": "IndexError: 3"},
    {"model": "b", "status": "ok", "reason": "", "speedup": 3.2},
    {"model": "x", "status": "ok", "reason": "", "speedup": 3.2},
]


def test_the_page_counts_each_model_once(tmp_path):
    for name, rows in (("ours", OURS), ("theirs", THEIRS)):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = list(page(read_results(tmp_path / "ours"), read_results(tmp_path / "theirs")))
    assert "| ldrf | 3 | 2 (67%) | 1 | 0 | 0 | 50% |" in lines
    assert "| Torch-Pruning 1.6.1 | 2 | 1 (50%) | 0 | 1 | 0 |  |" in lines
    assert "| b | ok | 90% | 1 | 1 | 2.00x | 1.50x | 40 |  |  | ok | 3.20x |" in lines
    assert "- c (refused): `it is 'one' layer`" in lines
    assert "- a (failed): `IndexError: 3`" in lines


def test_the_page_in_the_docs_is_that_of_the_results():
    ours, theirs = (read_results(BENCHMARKS / name) for name in ("coverage.jsonl", "coverage_torch_pruning.jsonl"))
    written = (BENCHMARKS.parent / "docs" / "coverage.md").read_text().splitlines()
    assert written == list(page(ours, theirs))
