"""The pages say what is true: the site builds, commands in them parse, and names in them exist."""

import ast
import importlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import ldrf
from ldrf.cli.commands import COMMANDS, read_command

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
HELP = {kind.command: kind.help for kind in COMMANDS}


def blocks(page: Path, kind: str) -> list[str]:
    """The fenced code of a page in one language, '' for none."""
    fenced = re.findall(r"^```([^\n]*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [text for language, text in fenced if language.split(" ")[0] == kind]


def shell_lines() -> list[str]:
    """Every command line of ldrf in the pages and in its own help."""
    pages = [line for page in PAGES for block in blocks(page, "") for line in block.splitlines()]
    helps = [line.rpartition(": ")[2] for text in HELP.values() for line in text.splitlines()]
    return sorted({line for line in pages + helps if line.startswith("ldrf ")})


@pytest.mark.parametrize("line", shell_lines())
def test_a_command_in_the_pages_parses(line):
    read_command(shlex.split(line, comments=True)[1:])


def test_every_command_is_shown_in_its_own_help():
    shown = {line.split()[1] for text in HELP.values() for line in re.findall(r": (ldrf .+)", text)}
    assert shown == HELP.keys()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_in_the_pages_is_python(page):
    for block in blocks(page, "python"):
        ast.parse(textwrap.dedent(block))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_in_the_pages_exist(page):
    for block in blocks(page, "python"):
        for name in re.findall(r"(?<![\w./\"])ldrf\.(\w+)\(", block):
            assert name in ldrf.__all__, name
        for module, names in re.findall(r"^from (ldrf[\w.]*) import ([\w, ]+)", block, re.MULTILINE):
            for name in names.split(", "):
                assert hasattr(importlib.import_module(module), name), f"{module}.{name}"


@pytest.fixture
def generator(monkeypatch):
    """The script that writes the generated parts of the pages."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    return importlib.import_module("generate")


@pytest.mark.slow
def test_generated_parts_of_the_pages_are_up_to_date(generator, capsys):
    assert generator.main(["--check"]) == 0, f"run 'python docs/generate.py': {capsys.readouterr().out}"


@pytest.mark.slow
def test_a_stale_page_is_named_and_mended(generator, monkeypatch, tmp_path, capsys):
    docs = shutil.copytree(ROOT / "docs", tmp_path / "docs")
    page, picture = docs / "cli.md", docs / "figures" / "architecture.svg"
    monkeypatch.setattr(generator, "DOCS", docs)
    monkeypatch.setattr(generator, "PICTURE", picture)
    fresh = page.read_text()
    page.write_text(fresh.replace("--speedup FLOAT", "--faster FLOAT"))
    picture.unlink()
    assert generator.main(["--check"]) == 1
    assert capsys.readouterr().out == "stale: docs/cli.md\nstale: docs/figures/architecture.svg\n"
    assert "--faster" in page.read_text() and not picture.exists()
    assert generator.main([]) == 0
    assert page.read_text() == fresh and picture.exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_in_the_pages_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        assert link.startswith("http") or (page.parent / link).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_named_in_the_pages_exist(page):
    for name in re.findall(r"`((?:ldrf|tests|benchmarks|results|examples)/[\w/.-]+\.(?:py|json))`", page.read_text()):
        assert (ROOT / name).exists(), name
    for name in set(re.findall(r"`(ldrf(?:\.\w+)+)`", page.read_text())) - {"ldrf.json"}:
        assert importable(name), name


def importable(name: str) -> bool:
    """Whether a dotted name is a module, or a name in one."""
    value, rest = ldrf, name.split(".")[1:]
    for part in rest:
        value = getattr(value, part, None)
        if value is None:
            return False
    return True


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    if any(importlib.util.find_spec(name) is None for name in ("mkdocs", "material")):
        pytest.skip("mkdocs is not installed: 'make docs' installs it")
    folder = tmp_path_factory.mktemp("site")
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(argv, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_shows_every_command_and_every_name(site):
    commands, api = (site / "cli.html").read_text(), (site / "api.html").read_text()
    for name in HELP:
        assert f'id="ldrf-{name}"' in commands
    assert "--speedup FLOAT" in commands and "--solver {joint,closed-form,none,l1-mask}" in commands
    for name in set(ldrf.__all__) - {"__version__"}:
        assert f'id="ldrf{name.lower()}"' in api, name


def test_the_site_needs_no_network(site):
    for page in site.glob("*.html"):
        text = page.read_text()
        assert re.findall(r'<(?:script|img|iframe)[^>]+src="(?:https?:)?//', text) == []
        assert re.findall(r'<link[^>]+rel="(?:stylesheet|preconnect|icon)"[^>]+href="(?:https?:)?//', text) == []
    assert not list(site.rglob("*.py"))
