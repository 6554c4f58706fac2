"""``ldrf prune``: what it passes on, what it keeps, and the whole way to a slim network."""

import json
from pathlib import Path

import pretend_device
import pytest
from fake_library import prune_args

from ldrf.cli import main
from ldrf.config import Deployment, PruneConfig
from ldrf.deployment.latency import Latency, LayerTime


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ([], "exactly one of --speedup, --params, --widths, --keep, --objective, --latency and --max-drop"),
        (["--objective", "2"], "--objective takes NAME=FLOAT, such as params=2. Got '2' instead"),
        (["--speedup", "2", "--params", "2"], "exactly one of"),
        (["--widths", "0=x"], "--widths takes NAME=INT, such as features.3=40. Got '0=x' instead"),
        (["--widths", "40"], "Got '40' instead"),
        (["--keep", "=0.5"], "--keep takes NAME=FLOAT"),
        (["--latency", "fast"], "a time such as '4 ms'. Got 'fast' instead"),
        (["--speedup", "2", "--runtime", "torch"], "--runtime, --batch and --threads go with --latency"),
    ],
)
def test_a_wrong_target_ends_in_2(plugin, core, more, words, capsys):
    assert main(prune_args(plugin, *more)) == 2
    assert words in capsys.readouterr().err
    assert not core.pruned


def test_prune_passes_target_config_and_images_on(plugin, core, capsys):
    more = ["--widths", "0=4", "2=5", "--ignore", "5", "--images", "40", "--steps", "7", "--selection", "apoz"]
    assert main(prune_args(plugin, *more, "--seed", "3")) == 0
    call = core.pruned[0]
    assert call["widths"] == {"0": 4, "2": 5} and call["ignore"] == ("5",) and call["images"] == 40
    assert call["config"] == PruneConfig(steps=7, selection="apoz", seed=3)
    assert not {"speedup", "params", "keep"} & call.keys()
    out = capsys.readouterr().out
    assert "the result's own table" in out and "top-1, 64 images" in out and "3.00x less" in out


def test_prune_passes_parts_on(plugin, core):
    assert main(prune_args(plugin, "--speedup", "2", "--parts", "backbone,rpn.head")) == 0
    assert main(prune_args(plugin, "--speedup", "2")) == 0
    assert core.pruned[0]["parts"] == ["backbone", "rpn.head"] and "parts" not in core.pruned[1]


def test_prune_passes_a_latency_and_where_it_is_measured_on(plugin, core):
    more = ["--runtime", "torch", "--batch", "4", "--threads", "2"]
    assert main(prune_args(plugin, "--latency", "2", *more)) == 0
    assert main(prune_args(plugin, "--latency", "4ms")) == 0
    asked = [(call["latency"], call["deployment"]) for call in core.pruned]
    assert asked == [(2.0, Deployment("torch", 4, 2)), ("4ms", Deployment())]


def test_what_was_measured_for_the_target_is_what_is_kept(plugin, core, monkeypatch, capsys):
    latency = Latency("torch", "1.0", 4, 2, 10.0, 4.0, 0.001, (LayerTime("0", 8.0, 2.0),))
    monkeypatch.setattr("fake_library.FakeResult.latency", latency)
    assert main(prune_args(plugin, "--latency", "2")) == 0
    metrics = core.saved[0]["metrics"]
    assert metrics["latency_ms"] == {"dense": 10.0, "slim": 4.0} and metrics["timing"] == {"images": 4, "threads": 2}
    assert "2.50x faster (10 ms -> 4 ms) in torch 1.0, batch 4, 2 threads" in capsys.readouterr().out


def test_prune_passes_the_method_on(plugin, core, capsys):
    assert main(prune_args(plugin, "--speedup", "2")) == 0
    assert main(prune_args(plugin, "--speedup", "2", "--method", "he2017")) == 0
    assert [call["method"] for call in core.pruned] == ["ldrf", "he2017"]
    assert main(prune_args(plugin, "--speedup", "2", "--method", "he2018")) == 2
    assert "thinet" in capsys.readouterr().err


@pytest.mark.slow
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
    printed = json.loads(captured.out)
    assert printed["speedup"] == 3.0 and printed["metrics"]["macs"]["slim"] == 100
    assert "chatter" in captured.err


def test_prune_without_test_images_does_not_evaluate(plugin, core):
    assert main(prune_args(plugin, "--speedup", "2", "--test-images", "0")) == 0
    assert "accuracy" not in core.saved[0]["metrics"]


def test_prune_keeps_its_journal_until_the_figures_are_there_too(plugin, core):
    assert main(prune_args(plugin, "--speedup", "2", "--resume", "--memory", "1GiB")) == 0
    call = core.pruned[0]
    assert call["out"] == Path("out") and call["resume"] is True and call["save"] is False
    assert call["config"].memory == 2**30
    assert (
        core.saved[0]["run"]["command"]
        == "ldrf prune plugin.py:net --data plugin.py:data --speedup 2.0 --memory 1073741824"
    )


@pytest.mark.parametrize("memory", ["lots", "2 GiBs", "-1", "1e400"])
def test_a_wrong_amount_of_memory_is_told(plugin, core, memory, capsys):
    assert main(prune_args(plugin, "--speedup", "2", f"--memory={memory}")) in (1, 2)
    assert "memory" in capsys.readouterr().err and not core.pruned


@pytest.mark.slow
def test_the_whole_way_from_a_file_to_a_slim_network(plugin, capsys):
    assert main(prune_args(plugin, "--speedup", "1.5", "--steps", "5", "--json")) == 0
    printed = json.loads(capsys.readouterr().out)
    record = json.loads(Path("out/ldrf.json").read_text())
    assert printed["speedup"] >= 1.5 and record["speedup"] == printed["speedup"]
    assert record["metrics"] == printed["metrics"] and record["source"]["model"] == "plugin.py:net"
    assert {"accuracy", "macs", "parameters", "latency_ms"} <= record["metrics"].keys()
    assert {"widths", "config", "seed", "versions"} <= record.keys() and record["target"] == {"speedup": 1.5}
    assert printed["report"] == "out/report.html" and Path("out/report.html").stat().st_size < 1_000_000
    page = Path("out/report.html").read_text()
    assert page.count('class="plot"') == 4 and page.count('class="sheet"') == 2 and "from plugin import net" in page

    slim = ["out", "--architecture", "plugin.py:net", "--data", "plugin.py:data", "--json"]
    assert main(["evaluate", *slim]) == 0
    evaluated = json.loads(capsys.readouterr().out)
    assert evaluated["macs"] == record["metrics"]["macs"]["slim"]
    assert evaluated["top1"] == record["metrics"]["accuracy"]["slim"]
    assert main(["analyze", *slim]) == 0
    assert json.loads(capsys.readouterr().out)["layers"][0]["width"] == printed["widths"]["0"]


@pytest.mark.slow
def test_a_slim_network_can_be_pruned_again(plugin, capsys):
    assert main(prune_args(plugin, "--widths", "0=6", "--solver", "closed-form")) == 0
    argv = ["prune", "out", "--architecture", "plugin.py:net", "--data", "plugin.py:data", "--out", "again"]
    assert main([*argv, "--widths", "2=5", "--solver", "closed-form"]) == 0
    capsys.readouterr()
    assert main(["evaluate", "again", *argv[2:6], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["macs"] == 36 * 6 * 27 + 16 * 5 * 54 + 80 * 4


@pytest.mark.slow
def test_a_command_computes_on_the_device_that_is_named_and_on_an_accelerator_by_default(plugin, capsys):
    asked = ["--widths", "0=4", "2=5", "--solver", "closed-form", "--json", "--force"]
    assert main(prune_args(plugin, *asked, "--device", "cuda:7")) == 1
    assert "The device 'cuda:7' is not there: torch finds no accelerator here" in capsys.readouterr().err
    with pretend_device.seen() as state:
        assert main(prune_args(plugin, *asked)) == 0
        assert state.convolutions() > 10
        record = json.loads(capsys.readouterr().out)
        assert record["versions"]["device"] == record["computed"]["device"] == "pretend:0"
        folder = [record["folder"], "--architecture", f"{plugin}:net"]
        assert main(["bench", *folder, "--seconds", "0.01", "--batch", "2", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["machine"]["device"] == "pretend:0"
    assert main(prune_args(plugin, *asked)) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["versions"]["device"] == record["computed"]["device"] == "cpu"
