"""A step is done once, goes on after a kill, and is done again with other settings."""

import pytest

from ldrf.errors import LdrfError
from ldrf.shipping.steps import Steps, key_of


@pytest.fixture
def steps(tmp_path):
    events = []
    return Steps(tmp_path / ".steps", lambda event, **data: events.append((event, data))), events


def test_a_step_that_is_done_is_not_done_again(steps, tmp_path):
    made, events = steps
    calls, file = [], tmp_path / "file"

    def work(folder, again):
        calls.append(again)
        file.write_text("x")
        return {"files": [str(file)], "value": (1, 2)}

    assert made.run("one", "key", work) == {"files": [str(file)], "value": [1, 2]}
    assert made.run("one", "key", work)["value"] == [1, 2] and calls == [False]
    assert [e for e, d in events] == ["step", "stepped", "step"] and events[-1][1]["done"] is True
    assert set(made.seconds) == {"one"}
    file.unlink()
    made.run("one", "key", work)
    assert calls == [False, False]  # its file was gone


def test_after_a_kill_it_goes_on_in_its_folder_unless_settings_changed(steps):
    made, _ = steps
    seen = []

    def killed(folder, again):
        (folder / "half").write_text("x")
        raise KeyboardInterrupt

    def work(folder, again):
        seen.append((again, (folder / "half").exists()))
        return {}

    for name, key in (("one", "key"), ("two", "other")):
        with pytest.raises(KeyboardInterrupt):
            made.run(name, "key", killed)
        made.run(name, key, work)
    assert seen == [(True, True), (False, False)]


def test_keys_depend_on_settings_and_on_the_step_before():
    assert key_of("a", {"x": 1}) == key_of("a", {"x": 1}) != key_of("b", {"x": 1}) != key_of("a", {"x": 2})


def test_damaged_notes_are_told(steps):
    made, _ = steps
    made.folder.mkdir()
    (made.folder / "steps.json").write_text("{")
    with pytest.raises(LdrfError, match="is damaged: .*delete '.*' to start anew"):
        made.done("one", "key")
