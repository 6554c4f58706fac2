"""The command line: what it passes on, what it prints, and how it ends."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from networks import NET
from results_on_disk import write_result
from safetensors.torch import load_file
from torch import nn

import ldrf
from ldrf.cli import main
from ldrf.cli import train as train_command
from ldrf.config import PruneConfig
from ldrf.data.cifar10 import LabelledImages
from ldrf.errors import LdrfError, LdrfWarning
from ldrf.zoo.cifar_resnet import resnet20


@pytest.fixture
def plugin(tmp_path, monkeypatch) -> str:
    """A file with a small network and data, named relative to the working folder."""
    (tmp_path / "plugin.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    return "plugin.py"


@dataclass
class FakeResult:
    model: nn.Module
    macs = (300, 100)
    parameters = (60, 20)
    widths, full_widths = {"0": 4}, {"0": 8}

    def as_dict(self):
        return {"speedup": 3.0, "widths": {"0": 4}}

    def __str__(self):
        return "the result's own table"


class FakeCore:
    """Stands in for the library, and notes how it was called."""

    def __init__(self, monkeypatch) -> None:
        self.pruned: list[dict] = []
        self.saved: list[dict] = []
        monkeypatch.setattr(ldrf, "prune", self.prune)
        monkeypatch.setattr(ldrf, "save", self.save)
        monkeypatch.setattr("ldrf.cli.prune.write_report", lambda folders: folders[0] / "report.html")
        monkeypatch.setattr("ldrf.cli.prune.latency_ratio", lambda *_: {"dense": 2.0, "slim": 1.0})

    def prune(self, model, batches, **named):
        print("chatter on stdout")
        self.pruned.append({"images": sum(len(images) for images, _ in batches), **named})
        return FakeResult(model)

    def save(self, result, folder, **named):
        self.saved.append({"folder": folder, **named})


@pytest.fixture
def core(monkeypatch) -> FakeCore:
    return FakeCore(monkeypatch)


def prune_args(plugin: str, *more: str) -> list[str]:
    return ["prune", f"{plugin}:net", "--data", f"{plugin}:data", "--out", "out", *more]


# How it ends


@pytest.mark.parametrize("command", ["demo", "inspect", "analyze", "prune", "evaluate", "report", "train"])
def test_every_command_has_an_example_in_its_help(command, capsys):
    assert main([command, "--help"]) == 0
    assert f"For example: ldrf {command}" in capsys.readouterr().out


@pytest.mark.parametrize("argv", [[], ["nonsense"], ["evaluate"], ["evaluate", "vgg9", "--data", "sample", "--bogus"]])
def test_a_wrong_command_line_ends_in_2(argv, capsys):
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ([], "exactly one of --speedup, --params, --widths, --keep and --objective"),
        (["--objective", "2"], "--objective takes NAME=FLOAT, such as params=2. Got '2' instead"),
        (["--speedup", "2", "--params", "2"], "exactly one of"),
        (["--widths", "0=x"], "--widths takes NAME=INT, such as features.3=40. Got '0=x' instead"),
        (["--widths", "40"], "Got '40' instead"),
        (["--keep", "=0.5"], "--keep takes NAME=FLOAT"),
    ],
)
def test_a_wrong_target_ends_in_2(plugin, core, more, words, capsys):
    assert main(prune_args(plugin, *more)) == 2
    assert words in capsys.readouterr().err
    assert not core.pruned


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["evaluate", "vgg99", "--data", "sample"], "Unknown model 'vgg99': expected vgg9, resnet20"),
        (["evaluate", "plugin.py:net", "--data", "nowhere"], "Unknown data 'nowhere': expected 'sample'"),
        (["evaluate", "plugin.py:net", "--data", "sample"], "The model can't take a batch of shape [64, 3, 32, 32]"),
        (["evaluate", "plugin.py:net", "--data", "plugin.py:data", "--images", "0"], "must be at least 1"),
        (["train", "vgg9", "--data", "imagefolder:x", "--out", "out"], "Expected CIFAR-10"),
        (["train", "vgg9", "--data", "cifar10:x", "--out", "out"], "No CIFAR-10 train set in 'x'"),
    ],
)
def test_an_error_is_one_line_and_ends_in_1(plugin, argv, words, capsys):
    assert main(argv) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1
    assert words in captured.err


def test_a_recipe_that_makes_no_sense_ends_in_an_error(capsys):
    assert main(["train", "vgg9", "--data", "sample", "--out", "out", "--epochs", "0"]) in (1, 2)
    assert "must be positive" in capsys.readouterr().err


def test_an_error_of_the_library_ends_in_1(plugin, core, monkeypatch, capsys):
    def fail(*_, **__):
        raise LdrfError("No such layer.")

    monkeypatch.setattr(ldrf, "prune", fail)
    assert main(prune_args(plugin, "--speedup", "2")) == 1
    assert capsys.readouterr().err == "error: No such layer.\n"


def test_ctrl_c_ends_in_130_and_writes_nothing(plugin, core, monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(ldrf, "prune", interrupt)
    assert main(prune_args(plugin, "--speedup", "2")) == 130
    assert capsys.readouterr().err == "error: interrupted\n"
    assert not core.saved and not Path("out").exists()


def test_a_bug_is_not_hidden(plugin, core, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(ldrf, "prune", fail)
    with pytest.raises(ZeroDivisionError):
        main(prune_args(plugin, "--speedup", "2"))


@pytest.mark.filterwarnings("default::ldrf.errors.LdrfWarning")
def test_a_warning_is_one_line(plugin, core, monkeypatch, capsys):
    import warnings

    def warn(model, batches, **_):
        warnings.warn("few rows", LdrfWarning, stacklevel=1)
        return FakeResult(model)

    monkeypatch.setattr(ldrf, "prune", warn)
    assert main(prune_args(plugin, "--speedup", "2")) == 0
    assert capsys.readouterr().err == "warning: few rows\n"


def test_python_m_ldrf_is_the_same_command():
    done = subprocess.run([sys.executable, "-m", "ldrf", "nonsense"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "demo" in done.stderr and done.stdout == ""


# prune and demo


def test_prune_passes_target_config_and_images_on(plugin, core, capsys):
    more = ["--widths", "0=4", "2=5", "--ignore", "5", "--images", "40", "--steps", "7", "--selection", "apoz"]
    assert main(prune_args(plugin, *more, "--seed", "3")) == 0
    call = core.pruned[0]
    assert call["widths"] == {"0": 4, "2": 5} and call["ignore"] == ("5",) and call["images"] == 40
    assert call["config"] == PruneConfig(steps=7, selection="apoz", seed=3)
    assert not {"speedup", "params", "keep"} & call.keys()
    out = capsys.readouterr().out
    assert "the result's own table" in out and "top-1, 64 images" in out and "3.00x less" in out


def test_prune_passes_the_method_on(plugin, core, capsys):
    assert main(prune_args(plugin, "--speedup", "2")) == 0
    assert main(prune_args(plugin, "--speedup", "2", "--method", "he2017")) == 0
    assert [call["method"] for call in core.pruned] == ["ldrf", "he2017"]
    assert main(prune_args(plugin, "--speedup", "2", "--method", "he2018")) == 2
    assert "thinet" in capsys.readouterr().err


def test_a_rival_that_needs_labels_takes_them_from_the_data(plugin, capsys):
    assert main(prune_args(plugin, "--widths", "0=4", "--method", "molchanov2017", "--test-images", "0")) == 0
    assert "method: molchanov2017" in capsys.readouterr().out
    assert json.loads(Path("out/ldrf.json").read_text())["method"] == "molchanov2017"


def test_prune_keeps_metrics_and_where_the_model_came_from(plugin, core):
    assert main(prune_args(plugin, "--keep", "0=0.5")) == 0
    assert core.pruned[0]["keep"] == {"0": 0.5}
    saved = core.saved[0]
    assert saved["folder"] == Path("out")
    assert saved["source"] == {"model": "plugin.py:net", "weights": None, "data": "plugin.py:data"}
    assert saved["details"]["featuremaps"]["unit"] == "0" and saved["details"]["featuremaps"]["dense"]["maps"] == 8
    metrics = saved["metrics"]
    assert metrics["macs"] == {"dense": 300, "slim": 100} and metrics["parameters"] == {"dense": 60, "slim": 20}
    assert metrics["latency_ms"] == {"dense": 2.0, "slim": 1.0} and metrics["timing"]["images"] == 16
    assert metrics["accuracy"]["images"] == 64 and metrics["accuracy"]["dense"] == metrics["accuracy"]["slim"]


def test_prune_prints_one_json_object_and_nothing_else(plugin, core, capsys):
    assert main(prune_args(plugin, "--speedup", "2", "--json")) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["speedup"] == 3.0 and found["metrics"]["macs"]["slim"] == 100
    assert "chatter" in captured.err


def test_prune_without_test_images_does_not_evaluate(plugin, core):
    assert main(prune_args(plugin, "--speedup", "2", "--test-images", "0")) == 0
    assert "accuracy" not in core.saved[0]["metrics"]


def test_prune_refuses_a_full_folder_before_the_work(plugin, core, capsys):
    Path("out").mkdir()
    assert main(prune_args(plugin, "--speedup", "2")) == 0  # empty: fine
    Path("out/ldrf.json").write_text("{}")
    assert main(prune_args(plugin, "--speedup", "2")) == 1
    assert "add --force to replace it" in capsys.readouterr().err
    assert main(prune_args(plugin, "--speedup", "2", "--force")) == 0
    assert len(core.pruned) == 2


def test_force_does_not_replace_what_is_no_result(plugin, core, capsys):
    Path("out").mkdir()
    Path("out/thesis.tex").write_text("years of work")
    assert main(prune_args(plugin, "--speedup", "2", "--force")) == 1
    assert "holds no earlier result" in capsys.readouterr().err
    Path("file").touch()
    assert main(["prune", "plugin.py:net", "--data", "sample", "--speedup", "2", "--out", "file"]) == 1
    assert "is a file" in capsys.readouterr().err
    assert not core.pruned


def test_prune_keeps_its_journal_until_the_figures_are_there_too(plugin, core):
    assert main(prune_args(plugin, "--speedup", "2", "--resume", "--memory", "1GiB")) == 0
    call = core.pruned[0]
    assert call["out"] == Path("out") and call["resume"] is True and call["save"] is False
    assert call["config"].memory == 2**30
    assert (
        core.saved[0]["run"]["command"]
        == "ldrf prune plugin.py:net --data plugin.py:data --speedup 2.0 --memory 1073741824"
    )


def test_an_unfinished_run_is_resumed_or_thrown_away_but_not_by_accident(plugin, core, capsys):
    Path("out/ldrf-journal").mkdir(parents=True)
    Path("out/ldrf-journal/learned.safetensors").touch()
    assert main(prune_args(plugin, "--speedup", "2")) == 1
    assert "'out' holds an unfinished run: continue it with --resume, choose another --out" in capsys.readouterr().err
    assert main(prune_args(plugin, "--speedup", "2", "--resume")) == 0 and core.pruned[0]["resume"]
    assert Path("out/ldrf-journal").exists()
    assert main(prune_args(plugin, "--speedup", "2", "--force")) == 0
    assert not Path("out/ldrf-journal").exists() and len(core.pruned) == 2


@pytest.mark.parametrize("memory", ["lots", "2 GiBs", "-1", "1e400"])
def test_a_wrong_amount_of_memory_is_told(plugin, core, memory, capsys):
    assert main(prune_args(plugin, "--speedup", "2", f"--memory={memory}")) in (1, 2)
    assert "memory" in capsys.readouterr().err and not core.pruned


def test_demo_prunes_the_bundled_network_on_the_sample(core, tmp_path, monkeypatch):
    class Tiny(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 10))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ldrf.cli.models.pretrained_vgg9", Tiny)
    assert main(["demo"]) == 0
    assert core.pruned[0]["speedup"] == 3.0 and core.pruned[0]["images"] == 2000
    assert core.saved[0]["folder"] == Path("runs/demo") and core.saved[0]["source"]["model"] == "vgg9"
    assert core.saved[0]["metrics"]["accuracy"]["images"] == 2000


def test_the_whole_way_from_a_file_to_a_slim_network(plugin, capsys):
    assert main(prune_args(plugin, "--speedup", "1.5", "--steps", "5", "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    record = json.loads(Path("out/ldrf.json").read_text())
    assert found["speedup"] >= 1.5 and record["speedup"] == found["speedup"]
    assert record["metrics"] == found["metrics"] and record["source"]["model"] == "plugin.py:net"
    assert {"accuracy", "macs", "parameters", "latency_ms"} <= record["metrics"].keys()
    assert {"widths", "config", "seed", "versions"} <= record.keys() and record["target"] == {"speedup": 1.5}
    assert found["report"] == "out/report.html" and Path("out/report.html").stat().st_size < 1_000_000
    page = Path("out/report.html").read_text()
    assert page.count('class="plot"') == 4 and page.count('class="sheet"') == 2 and "from plugin import net" in page

    slim = ["out", "--architecture", "plugin.py:net", "--data", "plugin.py:data", "--json"]
    assert main(["evaluate", *slim]) == 0
    evaluated = json.loads(capsys.readouterr().out)
    assert evaluated["macs"] == record["metrics"]["macs"]["slim"]
    assert evaluated["top1"] == record["metrics"]["accuracy"]["slim"]
    assert main(["analyze", *slim]) == 0
    assert json.loads(capsys.readouterr().out)["layers"][0]["width"] == found["widths"]["0"]


def test_a_slim_network_can_be_pruned_again(plugin, capsys):
    assert main(prune_args(plugin, "--widths", "0=6", "--solver", "closed-form")) == 0
    argv = ["prune", "out", "--architecture", "plugin.py:net", "--data", "plugin.py:data", "--out", "again"]
    assert main([*argv, "--widths", "2=5", "--solver", "closed-form"]) == 0
    capsys.readouterr()
    assert main(["evaluate", "again", *argv[2:6], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["macs"] == 36 * 6 * 27 + 16 * 5 * 54 + 80 * 4


# report


def test_report_says_where_the_page_is(tmp_path, capsys):
    folder = write_result(tmp_path / "runs" / "one")
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr().out.startswith(f"Wrote {folder / 'report.html'} (")
    assert main(["report", str(folder), "--json", "--out", str(tmp_path / "page.html")]) == 0
    found = json.loads(capsys.readouterr().out)
    page = tmp_path / "page.html"
    assert found == {"report": str(page), "bytes": page.stat().st_size, "runs": [str(folder)], "passed_over": []}


def test_report_takes_what_a_pattern_catches(tmp_path, capsys):
    runs = tmp_path / "runs"
    for name in ("one", "two"):
        write_result(runs / name)
    (runs / "training").mkdir()
    for _ in range(2):  # the second time the page itself is caught too
        assert main(["report", *map(str, sorted(runs.iterdir())), str(runs / "one") + "/", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["report"] == str(runs / "report.html") and len(found["runs"]) == 2
    assert found["passed_over"] == [str(runs / "report.html"), str(runs / "training")]
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


# evaluate, analyze, train


def test_evaluate_prints_accuracy_and_cost(plugin, capsys):
    argv = ["evaluate", "plugin.py:net", "--data", "plugin.py:data"]
    assert main([*argv, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    conv = 36 * 8 * 27 + 16 * 8 * 72 + 128 * 4
    assert found["macs"] == conv and found["images"] == 64 and found["top5"] == 100.0
    assert found["parameters"] == 8 * 27 + 8 + 8 * 72 + 8 + 128 * 4 + 4
    assert main([*argv, "--images", "20"]) == 0
    out = capsys.readouterr().out
    assert "top-1" in out and f"{conv:,}" in out


def test_analyze_passes_energy_and_images_on(plugin, monkeypatch, capsys):
    calls = []

    class Analysis:
        def as_dict(self):
            return {"ranks": {"0": 3}}

        def __str__(self):
            return "a table of ranks"

    def analyze(model, batches, energy):
        calls.append((sum(len(x) for x, _ in batches), energy))
        return Analysis()

    monkeypatch.setattr(ldrf, "analyze", analyze)
    argv = ["analyze", "plugin.py:net", "--data", "plugin.py:data", "--images", "20"]
    assert main([*argv, "--energy", "0.5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"ranks": {"0": 3}}
    assert main(argv) == 0
    assert capsys.readouterr().out == "a table of ranks\n"
    assert calls == [(20, 0.5), (20, 0.65)]


def test_analyze_can_search_the_energy(plugin, capsys):
    argv = ["analyze", "plugin.py:net", "--data", "plugin.py:data", "--search", "--json"]
    assert main(argv) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["search"]["measure"] == "accuracy"
    assert found["energy"] == found["search"]["energy"] == found["search"]["trials"][-1]["energy"]


def test_training_goes_on_from_given_weights(tmp_path, monkeypatch, capsys):
    pixels = torch.randint(0, 256, (20, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    monkeypatch.setattr(train_command, "open_cifar10", lambda *_: LabelledImages(pixels, torch.arange(20) % 10))
    torch.manual_seed(5)
    start = {k: v + 0.5 if k == "linear.bias" else v for k, v in resnet20().state_dict().items()}
    torch.save(start, tmp_path / "start.pth")
    argv = ["train", "resnet20", "--data", "cifar10:folder", "--out", str(tmp_path / "run"), "--epochs", "1"]
    assert main([*argv, "--rate", "1e-9", "--weights", str(tmp_path / "start.pth"), "--json"]) == 0
    kept = load_file(json.loads(capsys.readouterr().out)["weights"])
    torch.testing.assert_close(kept["linear.bias"], start["linear.bias"])


def test_train_resumes_and_keeps_half_precision_weights(tmp_path, monkeypatch, capsys):
    def images(name, split):
        assert name == "cifar10:folder"
        generator = torch.Generator().manual_seed(len(split))
        pixels = torch.randint(0, 256, (20, 3, 32, 32), generator=generator, dtype=torch.uint8)
        return LabelledImages(pixels, torch.arange(20) % 10)

    monkeypatch.setattr(train_command, "open_cifar10", images)
    argv = ["train", "resnet20", "--data", "cifar10:folder", "--out", str(tmp_path), "--epochs", "1", "--batch", "10"]
    assert main([*argv, "--json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert "epoch 1/1" in captured.err and found["recipe"]["epochs"] == 1
    kept = load_file(found["weights"])
    assert kept["conv1.weight"].dtype == torch.float16
    assert main(argv) == 0  # nothing left to do
    captured = capsys.readouterr()
    assert "epoch 1/1" not in captured.out and "top-1" in captured.out
    assert main([*argv[:-3], "2", "--batch", "10"]) == 1
    assert "use the same settings to resume" in capsys.readouterr().err


def test_names_do_not_steer_the_terminal(tmp_path, monkeypatch, capsys):
    """Escape sequences are spelled out, and what rich would take for colours or pictures is printed as it is."""
    names = ["a\x1b[2J\x1b]0;title\x07", "[red]b[/red]", ":bomb:", "\u202ee", "<script>"]
    layers = "".join(f"(({name!r}), nn.Conv2d(4, 4, 1, bias=False)), (({name + 'r'!r}), nn.ReLU()), " for name in names)
    (tmp_path / "odd.py").write_text(
        "from collections import OrderedDict\nfrom torch import nn\n"
        f"def net(): return nn.Sequential(OrderedDict([('e', nn.Conv2d(3, 4, 1)), {layers}('z', nn.Conv2d(4, 4, 1))]))"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["inspect", "odd.py:net", "--shape", "3,6,6"]) == 0
    shown = capsys.readouterr().out
    for spelled in (r"a\x1b[2J\x1b]0;title\x07", "[red]b[/red]", ":bomb:", r"\u202ee", "<script>"):
        assert spelled in shown
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert main(["evaluate", "no\x1b[31mfolder", "--data", "sample"]) == 1
    assert r"no\x1b[31mfolder" in capsys.readouterr().err
    assert main(["inspect", "odd.py:net", "--shape", "3,6,6", "--json"]) == 0
    assert names[0] in json.loads(capsys.readouterr().out)["units"][1]["name"]
