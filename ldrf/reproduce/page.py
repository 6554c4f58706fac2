"""``docs/results.md`` and its figures, made from the files of results and from the notes on them."""

import tomllib
from pathlib import Path

from ldrf.errors import LdrfError
from ldrf.files.strict_json import LIMIT, read_bytes
from ldrf.files.writing import write_whole
from ldrf.reproduce.cells import spell
from ldrf.reproduce.figures import draw
from ldrf.reproduce.recipe import Section
from ldrf.reproduce.recipes import RECIPES
from ldrf.reproduce.results import Results, read

HEAD = """# Results

Made by `ldrf reproduce` from the files in `results/`; nothing here is typed by hand but the notes, which are in
`results/notes.toml`. Accuracies are in percent, differences and losses in percentage points, "difference" is ours minus
the paper's. † marks what uses labels; all else calibrates on images alone. – stands for what the paper does not
write, or what was not run.
"""


def write_page(results: Path, docs: Path) -> list[Path]:
    """Write the page on all files of results there are, and its figures; the paths written."""
    notes = read_notes(results / "notes.toml")
    parts, written = [HEAD], []
    for name in RECIPES:
        if (results / f"{name}.json").is_file():
            text, figures = _part(read(results / f"{name}.json"), notes.get(name, {}), docs)
            parts.append(text)
            written += figures
    docs.mkdir(parents=True, exist_ok=True)
    write_whole(docs / "results.md", "\n".join(parts))
    return [docs / "results.md", *written]


def read_notes(path: Path) -> dict[str, dict[str, str]]:
    """Hand-written sentences by recipe and section."""
    if not path.is_file():
        return {}
    try:
        notes = tomllib.loads(read_bytes(path, LIMIT).decode())
        if not all(
            isinstance(part, dict) and all(isinstance(t, str) for t in part.values()) for part in notes.values()
        ):
            raise ValueError("it must hold tables of sentences")
        return notes
    except (ValueError, OSError, RecursionError) as problem:
        raise LdrfError(f"'{path}' is not readable TOML: {problem}.") from problem


def _part(results: Results, notes: dict[str, str], docs: Path) -> tuple[str, list[Path]]:
    recipe = RECIPES[results.recipe]
    lines, written = [f"## {recipe.title}", "", _conditions(results), ""], []
    for section in recipe.sections(results.outcomes()):
        text, figures = _section(section, notes.get(section.key, ""), docs)
        lines.append(text)
        written += figures
    return "\n".join(lines), written


def _conditions(results: Results) -> str:
    """How the numbers came about, in a few sentences."""
    scale = results.scale
    tests = {c["outcome"]["test_images"] for c in results.cells.values() if "test_images" in c["outcome"]}
    spent = sum(cell["seconds"] for cell in results.cells.values())
    quick = f"**A quick run with `{results.model}`: it shows that all works, its numbers mean little.**"
    lines = [quick] if results.quick else []
    lines += ["Of the speed-ups only the lowest and the highest."] if scale.ends_only else []
    lines += [
        f"`{results.command}`: network `{results.model}`, images of `{results.data}`.",
        f"Calibrated on {scale.images:,} images, {scale.steps} descent steps a unit for LDRF;",
        f"evaluated on {' or '.join(f'{n:,}' for n in sorted(tests)) or 'no'} test images.",
        f"Seeds 0 to {scale.seeds - 1}." if scale.seeds > 1 else "Seed 0.",
        f"{len(results.cells)} cells in {spell(spent)}, made with {', '.join(results.versions) or 'nothing yet'}.",
    ]
    if results.commits:
        lines.append(f"Cells that tell their commit were made at {', '.join(results.commits)}.")
    if results.left:
        lines.append(f"Not run yet: {', '.join(results.left)}.")
    lines += [f"{name}: {reason}." for name, reason in results.refused.items()]
    return "\n".join(lines)


def _section(section: Section, note: str, docs: Path) -> tuple[str, list[Path]]:
    blocks = [f"### {section.title}", section.text, *(t.markdown() for t in section.tables if t.rows)]
    written = []
    for figure in section.figures:
        path = docs / "figures" / f"{figure.name}.svg"
        draw(figure, path)
        written.append(path)
        blocks.append(f"![{figure.caption}](figures/{path.name})")
        blocks.append(f"*{figure.caption}*")
    if note.strip():
        blocks.append(f"**Why we differ.** {note.strip()}")
    return "\n\n".join(blocks) + "\n", written
