"""The sweep's results as a page of the docs."""

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

FILES = {
    "ldrf": Path(__file__).with_name("coverage.jsonl"),
    "torch-pruning": Path(__file__).with_name("coverage_torch_pruning.jsonl"),
}
PAGE = Path(__file__).parents[1] / "docs" / "coverage.md"
Rows = dict[str, dict[str, Any]]


def read_results(path: Path) -> Rows:
    """Results by model; of several of one model the last."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = (json.loads(line) for line in lines if line.strip())
    return {row["model"]: row for row in rows}


def write_page() -> None:
    ours, theirs = (read_results(FILES[tool]) for tool in ("ldrf", "torch-pruning"))
    PAGE.write_text("\n".join(page(ours, theirs)) + "\n")


def page(ours: Rows, theirs: Rows) -> Iterator[str]:
    """Markdown: the totals, then a line for every model."""
    both = {name: row for name, row in theirs.items() if name in ours}
    yield "<!-- Written by benchmarks/coverage.py --page. -->"
    yield "# Models tried"
    yield ""
    yield (
        f"{len(ours)} models of torchvision, timm, Hugging Face, diffusers, "
        "segmentation_models_pytorch, Ultralytics and by hand, with random weights, each "
        "pruned to 1.5 times fewer MACs or the most it allows. A model counts as *ok* if the slim one runs, also at "
        "another batch size, exports with `torch.export`, trains a step, is faster, and if at full width the same "
        "steps give back the dense outputs to 1e-4. timm's models have at most two equal blocks in a row, but for "
        "those that other tools are known to fail on, which are whole. MACs that can shrink count coupled widths, too. "
        "*Refused*: ldrf "
        "says why it cannot. *Hang*: over the limit of processor time, which was 240 seconds for ldrf and 60 for "
        "Torch-Pruning, so their hangs do not compare. Calls are those of the traced graph."
    )
    yield ""
    yield "| | models | ok | refused | failed | hang | median share of MACs that can shrink |"
    yield "|---|---|---|---|---|---|---|"
    shares = [row.get("share", 0.0) for row in ours.values()]
    yield _totals("ldrf", ours, f"{median(shares):.0%}" if shares else "")
    if both:
        yield _totals("Torch-Pruning 1.6.1", both, "")
    yield ""
    yield (
        "Torch-Pruning gets the same models without code for any of them: half of every layer's channels, layers as "
        "wide as the output left alone. It is asked for less: the slim model runs at another batch size, gives the "
        "dense shapes, and is faster. Times are seconds on one core."
    )
    yield ""
    yield "`python benchmarks/coverage.py` makes the figures, and with `--page` this page."
    yield ""
    yield (
        "| model | ldrf | MACs that can shrink | units | coupled | largest | reached | calls | trace s | prune s "
        "| Torch-Pruning | reached |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    for name, row in sorted(ours.items()):
        yield _line(name, row, theirs.get(name, {}))
    yield from _reasons("What ldrf said of the others", ours)
    yield from _reasons("What became of the others with Torch-Pruning", both)


def _totals(tool: str, rows: Rows, share: str) -> str:
    counts = [sum(row["status"] == status for row in rows.values()) for status in ("ok", "refused", "failed", "hang")]
    ok = f"{counts[0]} ({counts[0] / max(len(rows), 1):.0%})"
    return f"| {tool} | {len(rows)} | {ok} | {' | '.join(map(str, counts[1:]))} | {share} |"


def _line(name: str, row: dict[str, Any], rival: dict[str, Any]) -> str:
    share = f"{row['share']:.0%}" if "share" in row else ""
    times = [_times(row.get(key)) for key in ("reachable", "speedup")]
    cells = [name, row["status"], share, row.get("units", ""), row.get("coupled", ""), *times]
    cells += [row.get(key, "") for key in ("calls", "trace_seconds", "prune_seconds")]
    cells += [rival.get("status", ""), _times(rival.get("speedup")) if rival.get("status") == "ok" else ""]
    return f"| {' | '.join(map(str, cells))} |"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}x"


def _reasons(title: str, rows: Rows) -> Iterator[str]:
    others = {name: row for name, row in sorted(rows.items()) if row["status"] != "ok"}
    if others:
        yield ""
        yield f"## {title}"
        yield ""
    for name, row in others.items():
        yield f"- {name} ({row['status']}): {_plain(row.get('reason', ''))}"


def _plain(reason: str, most: int = 400) -> str:
    """A reason without what Markdown would read as markup."""
    text = reason if len(reason) <= most else f"{reason[: most - 1]}…"
    return f"`{text.replace('`', chr(39))}`" if text else ""
