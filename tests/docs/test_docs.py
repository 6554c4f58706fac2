"""The pages say what is true: the site builds, commands in them parse, and names in them exist."""

import ast
import importlib
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import get_args

import pytest

import ldrf
from ldrf.cli.commands import Command, read_command

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SUBCOMMANDS = {told.name: told.description for _, told in map(get_args, get_args(Command))}


def blocks(page: Path, kind: str) -> list[str]:
    """The fenced code of a page in one language, '' for none."""
    found = re.findall(r"^```([^\n]*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [text for language, text in found if language.split(" ")[0] == kind]


def shell_lines() -> list[str]:
    """Every command line of ldrf in the pages and in its own help."""
    pages = [line for page in PAGES for block in blocks(page, "") for line in block.splitlines()]
    helps = [line.rpartition(": ")[2] for text in SUBCOMMANDS.values() for line in text.splitlines()]
    return sorted({line for line in pages + helps if line.startswith("ldrf ")})


@pytest.mark.parametrize("line", shell_lines())
def test_a_command_in_the_pages_parses(line):
    read_command(shlex.split(line, comments=True)[1:])


def test_every_command_is_shown_in_its_own_help():
    shown = {line.split()[1] for text in SUBCOMMANDS.values() for line in re.findall(r": (ldrf .+)", text)}
    assert shown == SUBCOMMANDS.keys()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_in_the_pages_is_python(page):
    for block in blocks(page, "python"):
        if "--8<--" not in block:
            ast.parse(textwrap.dedent(block))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_in_the_pages_exist(page):
    for block in blocks(page, "python"):
        for name in re.findall(r"(?<![\w./\"])ldrf\.(\w+)\(", block):
            assert name in ldrf.__all__, name
        for module, names in re.findall(r"^from (ldrf[\w.]*) import ([\w, ]+)", block, re.MULTILINE):
            for name in names.split(", "):
                assert hasattr(importlib.import_module(module), name), f"{module}.{name}"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    if any(importlib.util.find_spec(name) is None for name in ("mkdocs", "material", "mkdocstrings")):
        pytest.skip("mkdocs is not installed: 'make docs' installs it")
    folder = tmp_path_factory.mktemp("site")
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(argv, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_shows_every_command_and_every_name(site):
    commands, api = (site / "cli.html").read_text(), (site / "api.html").read_text()
    for name in SUBCOMMANDS:
        assert f'id="ldrf-{name}"' in commands
    assert "--speedup FLOAT" in commands and "--solver {joint,closed-form,none,l1-mask}" in commands
    for name in set(ldrf.__all__) - {"__version__"}:
        assert f'id="ldrf.{name}"' in api, name


def test_the_site_needs_no_network(site):
    for page in site.glob("*.html"):
        text = page.read_text()
        assert re.findall(r'<(?:script|img|iframe)[^>]+src="(?:https?:)?//', text) == []
        assert re.findall(r'<link[^>]+rel="(?:stylesheet|preconnect|icon)"[^>]+href="(?:https?:)?//', text) == []
    assert not list(site.rglob("*.py"))
