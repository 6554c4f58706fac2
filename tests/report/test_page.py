"""The report as a page: it tells what the folder holds, does without what is missing, and is one safe file."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from results_on_disk import HOSTILE, UNITS, details, png, write_result

from ldrf.deployment.latency import Latency, LayerTime
from ldrf.errors import LdrfError
from ldrf.report import write_report
from ldrf.report.comparison import series_of
from ldrf.report.headline import points, settings, short, tiles
from ldrf.report.loading import load_code
from ldrf.report.runs import read_run

VOID = {"meta", "link", "img"}


class Page(HTMLParser):
    """The tags, attributes and visible text of a page, whose elements must all be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def count(self, tag: str, kind: str) -> int:
        return sum(t == tag and kind in (a.get("class") or "").split() for t, a in self.tags)


def page_of(*folders: Path) -> Page:
    return Page(write_report(folders).read_text())


@pytest.fixture
def folder(tmp_path) -> Path:
    return write_result(tmp_path / "run")


def test_one_folder_has_its_page_in_itself(folder):
    path = write_report([folder])
    assert path == folder / "report.html"
    page = Page(path.read_text())
    for words in (
        "vgg9 at 3.00× fewer MACs",
        "88.70 % dense 89.70 % −1.00 points; top-5 99.55 %, dense 99.70 %; 2,000 test images",
        "3.00× fewer 155.1 M → 51.7 M",
        "4.53× fewer 3.51 M → 0.77 M",
        "2.04× faster 71.9 → 35.2 ms 16 images at a time, 2 threads",
        "96 of 256 neurons are kept in 3 units",
        "features.7 9 of 128",
        "0.400 → 0.0200",
        "(11, 128]",
        "head it is an output of the model",
        "estimated error of the network's outputs",
        "the first 64 of 512 maps",
        "energy 0.25",
        "torch 2.13.0",
        "lambda 2 not set",
    ):
        assert words in page.text, words
    assert page.count("svg", "line") == 3 + 2 + 1, "a width bar a unit, an error line a cut unit, and the axis"
    assert page.count("svg", "plot") == 6 and page.count("img", "sheet") == 2 and page.count("img", "photo") == 1


def test_the_page_needs_nothing_from_elsewhere(folder):
    text = write_report([folder]).read_text()
    page = Page(text)
    links = [a[k] for _, a in page.tags for k in ("src", "href", "xlink:href") if k in a]
    assert links and all(str(link).startswith(("data:", "#")) for link in links)
    assert "url(" not in text and "@import" not in text and "http:" not in text and "https:" not in text
    assert not any("style" in a or any(k.startswith("on") for k in a) for _, a in page.tags)
    anchors = {str(a["href"])[1:] for t, a in page.tags if t == "a"}
    assert anchors and anchors <= {a.get("id") for _, a in page.tags}


def test_names_from_a_file_are_only_text(tmp_path):
    units = {HOSTILE: (64, 23, 3)}
    more = details(units, curves_of=HOSTILE)
    more["featuremaps"] |= {"unit": HOSTILE, "behind": HOSTILE}
    changed = {
        "class": HOSTILE,
        "source": {"model": HOSTILE, "data": HOSTILE, HOSTILE: HOSTILE},
        "skipped": [{"name": HOSTILE, "reason": HOSTILE}],
        "config": {HOSTILE: HOSTILE},
        "target": {"widths": {HOSTILE: 3}},
        "versions": {HOSTILE: HOSTILE},
        "seconds": {HOSTILE: 1.0},
    }
    one = write_result(tmp_path / "<b>one", units, more, **changed)
    other = write_result(tmp_path / "<b>two", units, more, **changed)
    for path in (write_report([one]), write_report([one, other])):
        page = Page(path.read_text())
        assert sum(tag == "script" for tag, _ in page.tags) == 1 and not any(tag == "b" for tag, _ in page.tags)
        assert page.text.count(HOSTILE) > 5


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("widths", {}),
        ("ranks", {"features.0": "x"}),
        ("history", [{"name": "features.0"}]),
        ("metrics", {}),
        ("metrics", {"macs": {"dense": "1", "slim": 2}, "parameters": {"dense": 1, "slim": 1}}),
        ("speedup", float("nan")),
        ("speedup", None),
        ("skipped", [3]),
        ("config", 7),
        ("full_widths", {"features.0": 0}),
    ],
)
def test_a_damaged_record_is_refused_and_nothing_written(tmp_path, key, value):
    folder = write_result(tmp_path / "run", **{key: value})
    with pytest.raises(LdrfError, match="is damaged"):
        write_report([folder])
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize("text", ["", "[]", '{"spectra": 3}', '{"spectra": {"features.0": ["x"]}}', "[" * 100_000])
def test_damaged_details_are_refused(folder, text):
    (folder / "report.json").write_text(text)
    with pytest.raises(LdrfError, match="damaged"):
        write_report([folder])


@pytest.mark.parametrize("picture", ['x" onerror="alert(1)', "PHN2Zz4=", 3, png()[:40] + "!"])
def test_a_picture_that_is_no_png_is_refused(tmp_path, picture):
    more = details(UNITS)
    more["featuremaps"]["image"] = picture
    with pytest.raises(LdrfError, match="is damaged"):
        write_report([write_result(tmp_path / "run", more=more)])


def test_an_older_folder_without_details_has_a_shorter_page(tmp_path):
    page = page_of(write_result(tmp_path / "run", more=False))
    assert "This folder has no report.json , which keeps them" in page.text
    assert page.count("svg", "plot") == 0 and page.count("svg", "line") == 6 and page.count("img", "sheet") == 0


def test_what_was_not_measured_is_said(tmp_path):
    costs = {"macs": {"dense": 9, "slim": 3}, "parameters": {"dense": 900, "slim": 450}}
    more = details(UNITS, featuremaps=None, curves_of="readers", curves={})
    folder = write_result(tmp_path / "run", more=more, metrics=costs, source={}, history=[], skipped=[])
    page = page_of(folder)
    assert page.text.count("not measured") == 2 and "No unit was reconstructed" in page.text
    assert "None were kept: ldrf prune keeps" in page.text and "Every layer could be cut" in page.text
    assert page.count("svg", "plot") == 3, "spectra alone"
    assert "900 → 450" in page.text and "VGG9 at 3.00×" in page.text


def test_errors_and_curves_that_are_no_numbers_are_left_out(tmp_path):
    told = {"name": "features.0", "full": 64, "width": 23, "rank": 3, "cut_error": None, "error": 0.1}
    curves = {"features.0": [None] * 65}
    folder = write_result(tmp_path / "run", history=[{**told, "way": "cut"}], more=details(UNITS, curves=curves))
    page = page_of(folder)
    assert "No unit was reconstructed" in page.text and page.count("svg", "plot") == 3


def test_a_slower_slim_network_is_called_slower(tmp_path):
    run = read_run(write_result(tmp_path / "run"))
    metrics = {"macs": {"dense": 9, "slim": 3}, "parameters": {"dense": 9, "slim": 3}}
    slow = read_run(write_result(tmp_path / "slow", metrics={**metrics, "latency_ms": {"dense": 1.0, "slim": 1.25}}))
    assert tiles(run)[3].figure == "2.04× faster" and tiles(slow)[3].figure == "1.25× slower"
    long = {**metrics, "latency_ms": {"dense": 17229.3, "slim": 99.94}}
    found = tiles(read_run(write_result(tmp_path / "long", metrics=long)))[3]
    assert found.detail.split() == ["17,229", "→", "99.9", "ms"]


def test_a_run_by_latency_tells_where_the_time_goes(tmp_path):
    layers = (LayerTime("features.0", 8.0, 2.0), LayerTime("<b>", 1.0, 1.0))
    latency = Latency("onnxruntime", "1.31", 1, 2, 10.0, 4.0, 0.001, layers, ((2.0, 0.125),)).as_dict()
    folder = write_result(tmp_path / "run", latency=latency)
    page = page_of(folder)
    assert "Where the time goes" in page.text and "4.00×" in page.text and "<b>" in page.text
    assert "0.125 at 2×" in page.text and "onnxruntime 1.31, 16 images at a time" in page.text
    assert "Where the time goes" not in page_of(write_result(tmp_path / "other")).text
    for wrong in ({**latency, "slim": 0.0}, {**latency, "dense": "x"}, {**latency, "layers": [1]}):
        with pytest.raises(LdrfError, match="is damaged"):
            read_run(write_result(tmp_path / "wrong", latency=wrong))


@pytest.mark.slow
def test_the_page_of_a_very_deep_network_stays_under_a_megabyte(tmp_path):
    units = {f"stages.{i // 8}.blocks.{i}.attention.feed_forward.conv": (512, 200, 40) for i in range(200)}
    path = write_report([write_result(tmp_path / "run", units)])
    assert path.stat().st_size < 1_000_000 - 250_000, "that much feature maps may take"
    page = Page(path.read_text())
    assert page.count("svg", "plot") == 240 and "The 120 units cut hardest, of 200" in page.text


@pytest.mark.slow
def test_a_page_about_many_runs_stays_under_a_megabyte(tmp_path):
    names = [f"stages.{i // 8}.blocks.{i}.attention.feed_forward.conv" for i in range(50)]
    few, many = (  # the widths of many runs are not drawn
        write_report([write_result(tmp_path / str(count) / str(i), dict.fromkeys(names, unit)) for i in range(count)])
        for count, unit in ((6, (512, 200, 40)), (40, (16, 8, 2)))
    )
    assert few.stat().st_size < 1_000_000 and many.stat().st_size < 1_000_000
    assert Page(few.read_text()).count("svg", "line") == 6 * 101
    page = Page(many.read_text())
    assert page.count("svg", "line") == 0 and page.count("details", "run") == 40
    assert "Widths, errors, spectra, error curves and feature maps are in the report of each run" in page.text


def test_numbers_are_short():
    counts = (7, 999, 1234, 51_709_576, 155_128_832, 4.1e9)
    assert [short(n).split() for n in counts] == [
        *(["7"], ["999"], ["1.23", "k"], ["51.7", "M"]),
        *(["155.1", "M"], ["4.10", "G"]),
    ]
    assert short(774_980, 3_511_754).split() == ["0.77", "M"]
    assert points(-1).split() == ["−1.00", "points"] and points(0.5).split() == ["+0.50", "points"]
    assert points(-0.0001).split() == ["+0.00", "points"]


def test_settings_are_words(tmp_path):
    changed = {"target": {"keep": {"a": 0.5, "b": 0.25}}, "config": {"memory": 2**31, "force": True, "rate": 0.02}}
    found = settings(read_run(write_result(tmp_path / "run", **changed)))
    assert found["Asked for"] == {
        "keep": "a 0.5, b 0.25",
        "model": "vgg9",
        "data": "sample",
        "calibration images": "2,048",
    }
    assert found["Settings"] == {"memory": "2,147,483,648", "force": "yes", "rate": "0.02"}


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ("vgg9", "from ldrf.zoo.vgg9 import VGG9"),
        ("resnet56", "dense = resnet56()"),
        ("torchvision:resnet50", "dense = torchvision.models.get_model('resnet50', weights=None)"),
        ("timm:vit_tiny'", 'dense = timm.create_model("vit_tiny\'")'),
        ("nets/mine.py:make", "from mine import make  # 'nets/mine.py'"),
        ("nets/my-net.py:make", "dense = ...  # a fresh dense VGG9, made as you made yours"),
        (None, "dense = ...  # a fresh dense VGG9, made as you made yours"),
    ],
)
def test_the_code_to_copy_is_python_and_names_the_network(tmp_path, model, line):
    run = read_run(write_result(tmp_path / "it's", source={"model": model}))
    code = load_code(run)
    compile(code, "code", "exec")
    assert line in code.splitlines() and f"slim = ldrf.load({str(run.folder)!r}, dense).eval()" in code.splitlines()


def test_the_code_of_the_zoo_makes_the_network():
    from ldrf.report.loading import ZOO

    for imported, made in ZOO.values():
        found: dict = {}
        exec(f"{imported}\nnet = {made}", found)
        assert found["net"].state_dict()


def test_a_class_name_adds_no_code(tmp_path):
    named: dict[str, Any] = {"class": "X\nimport os", "source": {}}
    folder = write_result(tmp_path / "run", **named)
    assert "import os" not in load_code(read_run(folder))


# Several runs


def accuracy(slim: float) -> dict:
    return {
        "macs": {"dense": 9, "slim": 3},
        "parameters": {"dense": 9, "slim": 3},
        "accuracy": {"dense": 90.0, "slim": slim, "images": 100},
    }


def test_several_folders_are_compared_beside_them(tmp_path):
    runs = tmp_path / "runs"
    folders = [write_result(runs / f"{x}x", speedup=float(x), metrics=accuracy(91.0 - x)) for x in (5, 2, 3)]
    folders.append(write_result(runs / "blind", metrics={k: v for k, v in accuracy(0).items() if k != "accuracy"}))
    path = write_report(folders)
    assert path == runs / "report.html"
    page = Page(path.read_text())
    assert "4 runs side by side" in page.text and page.count("details", "run") == 4
    assert page.count("svg", "plot") == 1 and page.count("img", "sheet") == 0
    assert f"{runs / '2x'} pick vgg9 2.00× 89.00 % −1.00 points" in page.text
    identifiers = [a["id"] for _, a in page.tags if "id" in a]
    assert len(identifiers) == len(set(identifiers))


def test_lines_are_told_apart_by_what_differs(tmp_path):
    way = {"solver": "joint", "selection": "second-order", "steps": 250}
    runs = [
        read_run(write_result(tmp_path / str(i), speedup=s, metrics=accuracy(a), config=way | more))
        for i, (s, a, more) in enumerate([(5.0, 86.0, {}), (2.0, 89.0, {}), (5.0, 70.0, {"solver": "none"})])
    ]
    both = series_of(runs)
    assert [s.label for s in both] == ["vgg9 joint", "vgg9 none"] and both[0].dense == 90.0
    assert [p.speedup for p in both[0].points] == [2.0, 5.0]
    assert [s.label for s in series_of(runs[:2])] == ["vgg9"]


def test_runs_without_accuracy_are_still_listed(tmp_path):
    bare = {k: v for k, v in accuracy(0).items() if k != "accuracy"}
    page = page_of(write_result(tmp_path / "a", metrics=bare), write_result(tmp_path / "b", metrics=bare))
    assert "No run has an accuracy" in page.text and page.count("svg", "plot") == 0


# Where it goes


def test_another_place_can_be_named_and_only_html_is_written(folder, tmp_path):
    assert write_report([folder], tmp_path / "new" / "page.html").is_file()
    before = (folder / "ldrf.json").read_text()
    for wrong in (folder / "ldrf.json", tmp_path, folder / "model.safetensors"):
        with pytest.raises(LdrfError, match=r"must be a file that ends in .html"):
            write_report([folder], wrong)
    assert (folder / "ldrf.json").read_text() == before


def test_folders_from_different_places_need_a_place(tmp_path):
    folders = [write_result(tmp_path / "a" / "run"), write_result(tmp_path / "b" / "run")]
    with pytest.raises(LdrfError, match="do not lie in one folder"):
        write_report(folders)
    assert write_report(folders, tmp_path / "both.html").is_file()
    with pytest.raises(LdrfError, match="at least one result folder"):
        write_report([])


def test_a_page_is_replaced_whole_or_not_at_all(folder, monkeypatch):
    path = write_report([folder])
    before = path.read_text()

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("ldrf.files.writing.os.replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_report([folder])
    assert path.read_text() == before
    assert sorted(p.name for p in folder.iterdir()) == ["ldrf.json", "report.html", "report.json"]
    record = json.loads((folder / "ldrf.json").read_text())
    (folder / "ldrf.json").write_text(json.dumps(record | {"speedup": 4.0}))
    assert "4.00×" in write_report([folder]).read_text() != before


def test_the_policy_allows_the_pages_own_style_and_script_alone(folder):
    import base64
    import hashlib

    text = write_report([folder]).read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None and "unsafe" not in policy[1] and "default-src &#39;none&#39;" in policy[1]
    for tag in ("style", "script"):
        inside = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.S)
        assert inside is not None
        digest = base64.b64encode(hashlib.sha256(inside[1].encode()).digest()).decode()
        assert f"{tag}-src &#39;sha256-{digest}&#39;" in policy[1]
