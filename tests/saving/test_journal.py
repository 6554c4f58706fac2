"""A run with a folder loses no more than the unit in progress, ends with the same bits, and spoils nothing."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from networks import Chain, Residual, images, make
from torch import nn

import ldrf
from ldrf.algebra import descent
from ldrf.calibration.store import SpillFile
from ldrf.cli import main
from ldrf.errors import LdrfError
from ldrf.files.result_folders import JOURNAL, LEARNED, RECORD, SETTINGS
from ldrf.registry import METHODS
from ldrf.saving.journal import Journal

CONFIG = ldrf.PruneConfig(steps=6, joint_steps=2, energy=0.1, memory="20kB")
FORKS = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
HALVES = {"block1.conv1": 4, "block2.conv1": 6}


class Stop(Exception):
    """Stands in for whatever ends a run too early."""


def stopper(units: int):
    """Ends a run after so many units."""

    def on_event(event, data):
        nonlocal units
        units -= event == "unit"
        if units == 0 and event == "unit":
            raise Stop

    return on_event


def same(one: ldrf.PruneResult, other: ldrf.PruneResult) -> bool:
    first, second = one.model.state_dict(), other.model.state_dict()
    tensors = list(first) == list(second) and all(torch.equal(first[n], second[n]) for n in first)
    curves = all(torch.equal(one.curves[n], other.curves[n]) for n in other.curves)
    return tensors and curves and (one.widths, one.history) == (other.widths, other.history)


@pytest.fixture(scope="module")
def whole(prune_known) -> ldrf.PruneResult:
    """What a run that nothing stops ends with."""
    return prune_known(Residual, widths=HALVES, config=CONFIG)


@pytest.fixture
def stopped(prune_known, tmp_path):
    """``stopped(Residual, ...)``: a folder in which such a run was stopped after its first unit."""

    def begin(kind=Residual, units=1, **given) -> Path:
        given = {"widths": HALVES, "config": CONFIG} | given
        with pytest.raises(Stop):
            prune_known(kind, **given, out=tmp_path / "out", on_event=stopper(units))
        return tmp_path / "out"

    return begin


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_with_the_same_bits(tmp_path):
    kills = os.environ.get("LDRF_KILLS", "5")
    argv = [sys.executable, str(Path(__file__).parents[1] / "killed_runs.py"), str(tmp_path), kills, kills]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    print(outcome)
    assert outcome["kills"] == int(kills) and outcome["ended"] > 0 and outcome["differing"] == 0


@pytest.mark.parametrize("method", METHODS.names)
def test_every_method_goes_on_to_the_same_bits(stopped, prune_known, monkeypatch, tmp_path, method):
    given = {"widths": HALVES, "config": CONFIG, "method": method}
    if METHODS.find(method).labelled:
        monkeypatch.setattr("ldrf.run.take_labels", lambda *_: ([], torch.arange(48) % 5))
    folder = stopped(**given)
    assert sorted(p.name for p in (folder / JOURNAL).iterdir()) == [LEARNED, "lock", SETTINGS, "unit-0000.safetensors"]
    solved: list[str] = []
    resumed = prune_known(Residual, **given, out=folder, resume=True, on_event=lambda e, d: solved.append(e))
    assert same(resumed, prune_known(Residual, **given)) and solved.count("unit") == 2
    assert sorted(p.name for p in folder.iterdir()) == ["ldrf.json", "model.safetensors", "report.json"]


@pytest.mark.parametrize("solver", ["closed-form", "l1-mask"])
def test_every_solver_and_found_widths_too(stopped, prune_known, solver):
    given = {"widths": None, "speedup": 1.3, "config": replace(CONFIG, solver=solver, coupled=True)}
    folder = stopped(**given, units=2)
    resumed = prune_known(Residual, **given, out=folder, resume=True)
    assert same(resumed, prune_known(Residual, **given))


def test_stopped_among_the_steps_of_all_units_it_goes_on_from_there(prune_known, monkeypatch, tmp_path):
    """Also with images that are changed at random in every step."""
    given = {"widths": HALVES, "config": replace(CONFIG, joint_steps=6, augment=True)}
    wanted = prune_known(Residual, **given)
    monkeypatch.setattr(descent, "KEEP_EVERY", 0.0)
    keep, kept = Journal.keep, []

    def keep_three(self, standing):
        keep(self, standing)
        kept.append(standing.steps)
        if standing.steps == 3:
            raise Stop

    monkeypatch.setattr(Journal, "keep", keep_three)
    with pytest.raises(Stop):
        prune_known(Residual, **given, out=tmp_path / "out")
    resumed = prune_known(Residual, **given, out=tmp_path / "out", resume=True)
    assert kept == [1, 2, 3, 4, 5, 6], "the first three steps are not done again"
    assert same(resumed, wanted)


def test_what_was_done_is_not_done_again(stopped, prune_known, monkeypatch):
    folder = stopped()
    tried = []
    keep = Journal.keep_solved
    monkeypatch.setattr(Journal, "keep_solved", lambda self, i, u, new: tried.append(u.name) or keep(self, i, u, new))
    monkeypatch.setattr("ldrf.pipeline.survey", None)
    prune_known(Residual, widths=HALVES, config=CONFIG, out=folder, resume=True)
    assert tried == ["block2.conv1"]


@pytest.mark.slow
def test_the_memory_may_be_another_on_the_way(stopped, prune_known, whole):
    folder = stopped(config=replace(CONFIG, memory=10**9))
    resumed = prune_known(Residual, widths=HALVES, config=replace(CONFIG, memory=0), out=folder, resume=True)
    assert same(resumed, whole)


OTHER_SETTINGS = [
    ({"config": replace(CONFIG, steps=7)}, "steps is 7 here and was 6 in the folder's run"),
    ({"seed": 3}, "seed is 3 here and was 0"),
    ({"widths": None, "speedup": 3.0}, "speedup is 3.0 here and was not given; widths is not given here and was {"),
    ({"widths": {**HALVES, "block2.conv1": 7}}, '"block2.conv1": 7} here and was'),
    ({"method": "thinet"}, 'method is "thinet" here and was "ldrf"'),
]


@pytest.mark.slow
def test_other_settings_are_refused_with_the_difference(stopped, prune_known, whole):
    folder = stopped()
    before = {p.name: p.read_bytes() for p in (folder / JOURNAL).iterdir()}
    for other, words in OTHER_SETTINGS:
        with pytest.raises(LdrfError, match="holds a run with other settings") as raised:
            prune_known(Residual, **{"widths": HALVES, "config": CONFIG} | other, out=folder, resume=True)
        assert words in str(raised.value) and "or name another folder" in str(raised.value)
        assert {p.name: p.read_bytes() for p in (folder / JOURNAL).iterdir()} == before
    assert same(prune_known(Residual, widths=HALVES, config=CONFIG, out=folder, resume=True), whole)


def test_another_model_other_images_and_other_protected_layers_are_refused(tmp_path):
    given = {"widths": {"conv1": 6}, "config": CONFIG, "out": tmp_path / "out"}
    model = make(Chain)
    with pytest.raises(Stop):
        ldrf.prune(model, [images(24)], **given, on_event=stopper(1))
    with pytest.raises(LdrfError, match="the checksum of the inputs is"):
        ldrf.prune(model, [images(24, seed=1)], **given, resume=True)
    with pytest.raises(LdrfError, match="images is 23 here and was 24"):
        ldrf.prune(model, [images(23)], **given, resume=True)
    with pytest.raises(LdrfError, match="the checksum of the weights is"):
        ldrf.prune(make(Chain, seed=5), [images(24)], **given, resume=True)
    with pytest.raises(LdrfError, match=r'ignore is \["fc"\] here and was \[\]'):
        ldrf.prune(model, [images(24)], **given, resume=True, ignore=lambda name, _: name == "fc")


@pytest.mark.slow
def test_an_unfinished_run_is_not_started_over_by_accident(stopped, prune_known):
    folder = stopped()
    with pytest.raises(LdrfError, match=r"unfinished run, 1 of its units done: .*\(--resume\).* or throw it away"):
        prune_known(Residual, widths=HALVES, config=CONFIG, out=folder)
    with pytest.raises(LdrfError, match="holds the unfinished run of another result"):
        ldrf.save(prune_known(Residual, widths={"block1.conv1": 6}, config=CONFIG), folder)
    assert (folder / JOURNAL / "unit-0000.safetensors").is_file()


@pytest.mark.slow
def test_resume_begins_where_nothing_was_done_and_says_where_all_is_done(prune_known, tmp_path):
    given = {"widths": HALVES, "config": CONFIG, "out": tmp_path / "out"}
    once = prune_known(Residual, **given, resume=True)
    with pytest.raises(LdrfError, match="holds a finished result: there is nothing to resume"):
        prune_known(Residual, **given, resume=True)
    with pytest.raises(LdrfError, match="resume=True needs out="):
        prune_known(Residual, widths=HALVES, resume=True)
    with pytest.raises(LdrfError, match=r"holds an earlier result: .* replace it by force=True \(--force\)\."):
        prune_known(Residual, **given)
    assert same(prune_known(Residual, **given, force=True), once)


@pytest.mark.slow
def test_an_earlier_result_stays_until_the_new_one_is_there(stopped, prune_known, tmp_path):
    prune_known(Residual, widths={"block1.conv1": 6}, config=CONFIG, out=tmp_path / "out")
    before = (tmp_path / "out" / RECORD).read_bytes()
    folder = stopped(force=True)
    assert (folder / RECORD).read_bytes() == before
    ldrf.load(folder, make(Residual))
    prune_known(Residual, widths=HALVES, config=CONFIG, out=folder, resume=True)
    assert json.loads((folder / RECORD).read_text())["widths"] == HALVES


@pytest.mark.slow
def test_with_save_false_the_journal_waits_for_the_own_save(prune_known, tmp_path):
    result = prune_known(Residual, widths=HALVES, config=CONFIG, out=tmp_path / "out", save=False)
    assert [p.name for p in (tmp_path / "out").iterdir()] == [JOURNAL]
    ldrf.save(result, tmp_path / "out", metrics={"accuracy": {"dense": 1.0}})
    assert (tmp_path / "out" / RECORD).is_file() and not (tmp_path / "out" / JOURNAL).exists()


def test_a_run_that_fails_before_its_first_stage_is_done_leaves_nothing(prune_known, tmp_path):
    with pytest.raises(LdrfError, match="largest"):
        prune_known(Residual, speedup=1e6, config=CONFIG, out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["photos", "photos/x", "file", JOURNAL])
def test_a_place_of_something_else_is_refused_before_the_work(monkeypatch, tmp_path, name):
    monkeypatch.setattr("ldrf.run.read_network", None)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").write_text("cat")
    (tmp_path / "photos" / "x").mkdir()
    (tmp_path / "photos" / "x" / JOURNAL).mkdir()
    (tmp_path / "photos" / "x" / JOURNAL / "diary.txt").write_text("dear diary")
    (tmp_path / "file").write_text("text")
    (tmp_path / JOURNAL).write_text("a file by that name")
    with pytest.raises(LdrfError, match="Cannot save to"):
        ldrf.prune(make(Chain), [images(8)], speedup=2.0, out=tmp_path / name if name != JOURNAL else tmp_path)
    assert (tmp_path / "photos" / "x" / JOURNAL / "diary.txt").read_text() == "dear diary"


def test_a_read_only_place_is_refused_before_the_work(monkeypatch, tmp_path):
    monkeypatch.setattr("ldrf.run.read_network", None)
    monkeypatch.setattr("ldrf.files.result_folders.os.access", lambda path, _: Path(path) != tmp_path)
    with pytest.raises(LdrfError, match="is read-only; name another folder"):
        ldrf.prune(make(Chain), [images(8)], speedup=2.0, out=tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("where", ["learned", "unit-0001", "model", "spilled"])
def test_a_full_disk_keeps_what_was_done(prune_known, whole, monkeypatch, tmp_path, where):
    folder, given = tmp_path / "out", {"widths": HALVES, "config": CONFIG}
    fsync, spill = os.fsync, SpillFile.write
    units: list[str] = []

    def full(handle):
        if where in os.readlink(f"/proc/self/fd/{handle}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(handle)

    def full_spill(self, data):
        if where == "spilled" and (folder / JOURNAL / "unit-0000.safetensors").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        return spill(self, data)

    with monkeypatch.context() as patch:
        patch.setattr("ldrf.files.writing.os.fsync", full)
        patch.setattr("ldrf.calibration.store.SpillFile.write", full_spill)
        with pytest.raises(LdrfError, match="No space left on device"):
            prune_known(Residual, **given, out=folder, on_event=lambda e, d: units.append(e))
    assert not list(tmp_path.rglob("*.part*")) and [p.name for p in tmp_path.iterdir()] == ["out"]
    assert same(prune_known(Residual, **given, out=folder, resume=True), whole)


@pytest.mark.parametrize("name", [SETTINGS, LEARNED, "unit-0000.safetensors"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied"])
def test_a_damaged_journal_is_refused(stopped, prune_known, name, damage):
    path = stopped() / JOURNAL / name
    data = bytearray(path.read_bytes())
    data[-9] ^= 64
    path.write_bytes({"cut": bytes(data[:-20]), "flipped": bytes(data), "emptied": b""}[damage])
    if (name, damage) == (SETTINGS, "flipped"):
        path.write_text(path.read_text(errors="replace").replace('"format": 1', '"format": 2'))
    with pytest.raises(LdrfError, match="(is damaged|other settings|another version)"):
        prune_known(Residual, widths=HALVES, config=CONFIG, out=path.parents[1], resume=True)


@pytest.mark.slow
@FORKS
@pytest.mark.parametrize("when", [1, 2])
def test_a_save_killed_between_its_renames_is_put_right(stopped, prune_known, monkeypatch, when):
    """SIGKILL runs no handlers: what the next start finds is what the renames had done by then."""
    folder, whole = stopped(), prune_known(Residual, widths=HALVES, config=CONFIG)
    rename, calls = os.rename, []

    def killed(source, target):
        if len(calls) == when:
            os._exit(7)
        calls.append(source)
        rename(source, target)

    child = os.fork()
    if not child:
        try:
            monkeypatch.setattr("ldrf.files.result_folders.os.rename", killed)
            monkeypatch.setattr("ldrf.files.result_folders._put_right", lambda *_: os._exit(7))
            ldrf.save(whole, folder)  # torch cannot differentiate in a fork where there are devices
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert folder.exists() == (when == 2) and len(list(folder.parent.iterdir())) > 1
    if when == 1:
        prune_known(Residual, widths=HALVES, config=CONFIG, out=folder, resume=True)
    else:
        with pytest.raises(LdrfError, match="finished result"):
            prune_known(Residual, widths=HALVES, config=CONFIG, out=folder, resume=True)
    assert [p.name for p in folder.parent.iterdir()] == ["out"]
    assert not (folder / JOURNAL).exists()
    ldrf.load(folder, make(Residual))


@pytest.mark.slow
def test_two_processes_do_not_work_in_one_folder(stopped, prune_known):
    folder = stopped()
    code = f"import fcntl, sys; f = open({str(folder / JOURNAL / 'lock')!r}, 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); "
    code += "print('held', flush=True); sys.stdin.read()"
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout and other.stdout.readline() == b"held\n"
        with pytest.raises(LdrfError, match="Another process is at the run"):
            prune_known(Residual, widths=HALVES, config=CONFIG, out=folder, resume=True)
        other.communicate(b"")
    prune_known(Residual, widths=HALVES, config=CONFIG, out=folder, resume=True)


PLUGIN = """
import torch
from torch import nn

def net():
    torch.manual_seed(0)
    parts = [p for i in range(4) for p in (nn.Conv2d(8 if i else 3, 8, 3, padding=1), nn.ReLU())]
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(512, 4))

def data(split):
    generator = torch.Generator().manual_seed(len(split))
    for _ in range(4):
        yield torch.rand(16, 3, 8, 8, generator=generator), torch.randint(0, 4, (16,), generator=generator)
"""


@pytest.mark.slow
def test_a_killed_command_goes_on_in_a_new_process(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("plugin.py").write_text(PLUGIN)
    prune = ["prune", "plugin.py:net", "--data", "plugin.py:data", "--speedup", "1.5", "--images", "32"]
    prune += ["--steps", "20", "--joint-steps", "4", "--memory", "50kB", "--test-images", "0"]
    argv = [sys.executable, "-m", "ldrf", *prune, "--out", "killed"]
    first = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not list((Path("killed") / JOURNAL).glob("unit-*.safetensors")):
        assert first.poll() is None
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert main([*prune, "--out", "killed"]) == 1 and "go on with it by resume=True" in capsys.readouterr().err
    torch.set_num_threads(1)
    assert main([*prune, "--out", "killed", "--resume"]) == 0
    assert main([*prune, "--out", "whole"]) == 0
    killed, whole = ({p.name: p for p in Path(name).iterdir()} for name in ("killed", "whole"))
    assert sorted(killed) == sorted(whole) == ["ldrf.json", "model.safetensors", "report.html", "report.json"]
    assert killed["model.safetensors"].read_bytes() == whole["model.safetensors"].read_bytes()


@pytest.mark.slow
def test_workers_of_a_data_loader_change_no_bit():
    data = torch.utils.data.TensorDataset(images(40), torch.zeros(40))
    results = []
    for workers in (0, 2):
        loader = torch.utils.data.DataLoader(data, 8, num_workers=workers)
        results.append(ldrf.prune(make(Chain), loader, widths={"conv1": 6, "conv2": 8}, config=CONFIG))
    assert same(*results)


@pytest.mark.slow
def test_the_journal_holds_the_checksums_that_the_result_tells(prune_known, tmp_path):
    result = prune_known(Residual, widths=HALVES, config=CONFIG, out=tmp_path / "out")
    record = json.loads((tmp_path / "out" / RECORD).read_text())
    assert record["checksums"] == result.checksums and set(result.checksums) == {"weights", "inputs"}
    assert isinstance(result.model, nn.Module)
