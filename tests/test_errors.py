"""One kind of error and one of warning: a user catches these two, and reads one plain sentence."""

import ast
from pathlib import Path

import pytest
from networks import Chain, images, make

import ldrf
from ldrf import errors
from ldrf.errors import first_line

SOURCES = sorted(Path(ldrf.__file__).parent.rglob("*.py"))


def calls(name: str) -> list[tuple[str, ast.Call]]:
    """Every call in the package of a function or class with this last name, and where it stands."""
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name:
                found.append((f"{path.name}:{node.lineno}", node))
    return found


def words(message: ast.expr) -> str:
    """The text of a message as it is written, with a letter where values go."""
    if isinstance(message, ast.Constant):
        return str(message.value)
    if isinstance(message, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in message.values)
    return "x"


def test_both_are_public_and_neither_is_the_other():
    assert ldrf.LdrfError is errors.LdrfError and ldrf.LdrfWarning is errors.LdrfWarning
    assert issubclass(ldrf.LdrfWarning, UserWarning) and not issubclass(ldrf.LdrfWarning, ldrf.LdrfError)
    assert not issubclass(ldrf.LdrfError, ValueError | OSError | RuntimeError)  # so that no one catches it by accident


def test_a_bad_request_is_one_sentence_and_keeps_its_cause():
    with pytest.raises(ldrf.LdrfError) as raised:
        ldrf.prune(make(Chain), [images(4)[:, :2]], speedup=2.0)
    told = str(raised.value)
    assert "Chain cannot take a calibration batch of shape (4, 2, 8, 8)" in told and "\n" not in told
    assert isinstance(raised.value.__cause__, RuntimeError)


@pytest.mark.slow
def test_messages_are_single_lines():
    messages = [(where, words(call.args[0])) for where, call in calls("LdrfError") if call.args]
    assert len(messages) > 100
    assert [where for where, text in messages if "\n" in text or text != text.strip() or "  " in text] == []


@pytest.mark.slow
def test_every_warning_of_the_package_is_the_one_kind():
    kinds = {where: [ast.unparse(arg) for arg in call.args[1:2]] for where, call in calls("warn")}
    assert kinds and all(kind == ["LdrfWarning"] for kind in kinds.values()), kinds


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        (RuntimeError("one\ntwo"), "one"),
        (RuntimeError("\n  one \n\ntwo\n"), "one"),
        (KeyError(), "KeyError"),
        (ValueError(" \n "), "ValueError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
def test_the_first_line_or_the_type_where_there_is_none(problem, line):
    assert first_line(problem) == line
