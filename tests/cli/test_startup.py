"""Help, the version and mistakes are shown at once: nothing heavy is imported before it is needed."""

import subprocess
import sys
from typing import get_args

import pytest

import ldrf
from ldrf.cli import main
from ldrf.cli.arguments.base import ZooName
from ldrf.cli.arguments.export import Export
from ldrf.cli.arguments.prune import MethodName
from ldrf.cli.arguments.reproduce import RecipeName
from ldrf.cli.commands import COMMANDS
from ldrf.cli.models import ZOO
from ldrf.registry import METHODS
from ldrf.reproduce.recipes import RECIPES
from ldrf.saving.export import Format

HEAVY = ("torch", "numpy", "torchvision", "timm", "matplotlib", "safetensors")
IMPORTED = f"print('imported', *(name for name in {(*HEAVY, 'rich', 'tyro')!r} if name in sys.modules))"


def run(code: str) -> tuple[list[str], str, str]:
    """What a fresh Python has imported after the code, and what it printed."""
    done = subprocess.run([sys.executable, "-c", f"import sys; {code}; {IMPORTED}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *printed, last = done.stdout.splitlines()
    assert last.startswith("imported")
    return last.split()[1:], "\n".join(printed), done.stderr


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["--version"], 0, f"ldrf {ldrf.__version__}"),
        (["--help"], 0, "reproduce"),
        (["prune", "--help"], 0, "--speedup FLOAT"),
        (["train", "--help"], 0, "--epochs INT"),
        ([], 2, "demo"),
        (["prune"], 2, "--data DATA"),
        (["nonsense"], 2, "nonsense"),
        (["prune", "vgg9", "--data", "sample", "--out", "out"], 2, "exactly one of --speedup"),
        (["bench", "vgg9", "--batch", "one"], 2, "--batch takes numbers"),
        (["export", "vgg9"], 2, "say where to write with --out"),
        (["inspect", "vgg9", "--shape", "3,x"], 2, "--shape must be whole numbers"),
        (["report"], 2, "at least one result folder"),
        (["reproduce", "vgg9-cifar10"], 2, "needs images: add --data cifar10:folder"),
    ],
)
def test_help_and_mistakes_do_not_wait_for_torch(argv, code, words):
    imported, out, err = run(f"from ldrf.cli import main; assert main({argv!r}) == {code}")
    assert not set(HEAVY) & set(imported)
    assert words in (err if code else out)
    assert not (out if code else err)


def test_the_package_imports_nothing_until_it_is_used():
    assert run("import ldrf; ldrf.__version__; ldrf.LdrfError; dir(ldrf)")[0] == []


@pytest.mark.slow
def test_using_the_library_imports_no_tool_that_it_does_not_need():
    imported, *_ = run("import ldrf; ldrf.prune; ldrf.finetune; ldrf.export")
    assert "torch" in imported
    assert not {"torchvision", "timm", "matplotlib", "rich", "tyro"} & set(imported)


def test_every_public_name_can_be_reached_and_is_listed():
    for name in ldrf.__all__:
        assert getattr(ldrf, name) is not None
    assert set(ldrf.__all__) <= set(dir(ldrf))
    assert {*ldrf._HOME, "__version__"} == set(ldrf.__all__)


def test_modules_of_the_package_can_be_reached_without_an_import_of_their_own():
    assert run("import ldrf; assert ldrf.errors.LdrfError is ldrf.LdrfError; ldrf.config.PruneConfig()")[0] == []


def test_names_that_are_not_there_are_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'prone'"):
        ldrf.prone  # noqa: B018
    assert not hasattr(ldrf, "_private")
    from ldrf import prune

    assert prune is ldrf.prune


def test_the_version_is_printed(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ldrf {ldrf.__version__}\n"


def test_names_on_the_command_line_are_those_of_the_library():
    assert get_args(ZooName) == tuple(ZOO)
    assert get_args(MethodName) == METHODS.built_in
    assert set(get_args(RecipeName)) == set(RECIPES)
    formats = get_args(Export.__annotations__["format"])[0]
    assert set(get_args(get_args(formats)[0])) == set(get_args(Format))


def test_every_command_has_a_module_that_runs_it():
    import importlib

    for kind in COMMANDS:
        assert callable(importlib.import_module(f"ldrf.cli.{kind.command}").run)
