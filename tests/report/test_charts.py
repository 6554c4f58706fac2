"""The report's figures: everything stands where its number says, and names can do no harm."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from results_on_disk import HOSTILE

from ldrf.report.bars import error_axis, error_dots, error_scale, width_bar
from ldrf.report.plots import Frame, Point, Series, curve_plot, curve_scale, spectrum_plot, tradeoff_plot
from ldrf.report.runs import UnitRow
from ldrf.report.scales import LinearScale, LogScale, thinned

UNIT = UnitRow(
    "conv", 64, 16, 8, 0.1, 0.001, "descent", tuple(1 / (i + 1) for i in range(64)), tuple(range(64, -1, -1))
)
positive = st.floats(1e-9, 1e9)


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(str(svg))


def attributes(svg: str, kind: str, name: str) -> list[str]:
    """The attribute ``name`` of every element of class ``kind``."""
    return [e.attrib[name] for e in parsed(svg).iter() if e.get("class") == kind and name in e.attrib]


@given(st.lists(positive, min_size=1, max_size=5))
def test_a_log_scale_holds_its_values_in_order(values):
    scale = LogScale.around(values, most=20)
    places = [scale.place(v) for v in sorted(values)]
    assert places == sorted(places) and places[0] >= 0 and places[-1] <= 1
    assert scale.place(10.0**scale.low) == 0 and scale.place(10.0**scale.high) == 1
    assert scale.place(0) == 0 and len(scale.ticks) == scale.high - scale.low + 1 >= 2


def test_a_log_scale_drops_the_smallest_decades_and_needs_no_values():
    scale = LogScale.around([1e-12, 0.5], most=4)
    assert (scale.low, scale.high) == (-4, 0) and scale.place(1e-12) == 0
    assert scale.ticks[0] == (0.0, "10⁻⁴") and scale.ticks[-1] == (1.0, "1")
    assert LogScale.around([]).place(1.0) == 1.0


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_a_linear_scale_encloses_its_values_in_few_steps(low, span):
    scale = LinearScale.around([low, low + span])
    slack = 1e-6 * (1 + abs(low) + span)
    assert scale.marks[0] <= low + slack and scale.marks[-1] >= low + span - slack
    assert 2 <= len(scale.marks) <= 8
    assert scale.place(scale.marks[0]) == 0 and scale.place(scale.marks[-1]) == 1


def test_round_numbers_are_marked():
    assert LinearScale.around([86.1, 89.7]).marks == (86, 87, 88, 89, 90)
    assert LinearScale.around([1, 5]).marks == (1, 2, 3, 4, 5)
    assert [name for _, name in LinearScale.around([0.1, 0.3]).ticks] == ["0.10", "0.15", "0.20", "0.25", "0.30"]


@given(st.integers(1, 5000), st.integers(2, 64))
def test_thinning_keeps_both_ends(count, points):
    found = thinned(count, points)
    assert found[0] == 0 and found[-1] == count - 1 and len(found) <= max(points, 1)
    assert found == sorted(set(found))


def test_bars_are_as_long_as_the_share_kept():
    bar = width_bar(UNIT)
    assert attributes(bar, "kept", "width") == ["25.00%"] and attributes(bar, "track", "width") == ["100%"]
    assert attributes(bar, "rank", "x1") == ["12.50%"]
    assert parsed(bar)[0].text == "conv: 16 of 64 neurons kept, rank 8"


def test_errors_stand_on_one_scale():
    other = replace(UNIT, cut_error=1.0, error=0.01)
    scale = error_scale([UNIT, other, replace(UNIT, cut_error=None, error=None)])
    assert (scale.low, scale.high) == (-3, 0)
    assert attributes(error_dots(UNIT, scale), "cut", "cx") == ["66.67%"]
    assert attributes(error_dots(UNIT, scale), "left", "cx") == ["0.00%"]
    assert attributes(error_dots(other, scale), "gain", "x1") == ["33.33%"]
    assert [e.text for e in parsed(error_axis(scale))] == ["0.001", "0.01", "0.1", "1"]
    nothing = error_dots(replace(UNIT, error=None), scale)
    assert "circle" not in nothing and nothing.count("<line") == 4


def test_a_spectrum_starts_at_one_and_marks_its_rank():
    frame, plot = Frame(), spectrum_plot(UNIT, 64)
    line = [tuple(map(float, p.split(","))) for p in attributes(plot, "curve", "points")[0].split()]
    assert len(line) == 64
    assert line[0] == (frame.x(0), frame.y(1)) and line[-1] == (frame.x(1), frame.y(1 / 64))
    assert attributes(plot, "rank", "x1") == [str(frame.x(7 / 63))] and ">z = 8<" in plot
    assert "z = " not in spectrum_plot(replace(UNIT, rank=70), 64)


def test_a_curve_marks_the_width_that_was_chosen():
    unit = replace(UNIT, curve=tuple(1e4 ** (-w / 64) for w in range(64)) + (0.0,))
    frame, scale = Frame(), curve_scale([unit])
    plot = curve_plot(unit, scale, 20)
    dot = next(e for e in parsed(plot).iter() if e.tag == "circle")
    assert float(dot.attrib["cx"]) == frame.x(16 / 64) and float(dot.attrib["cy"]) == frame.y(0.75)
    assert len(attributes(plot, "curve", "points")[0].split()) <= 20
    assert "estimated error 0.1 at 16 of 64" in plot


def test_errors_beyond_the_signal_do_not_squeeze_the_others():
    scale = curve_scale([replace(UNIT, curve=(1e6, 0.5, 0.001, 0.0))])
    assert (scale.low, scale.high) == (-3, 0) and scale.place(1e6) == 1


@pytest.mark.parametrize("values", [(0.0,), (0.0, 0.0), (1.0,)])
def test_odd_spectra_and_curves_are_drawn(values):
    odd = replace(UNIT, full=1, width=1, rank=1, spectrum=values, curve=(*values, 0.0))
    assert "nan" not in spectrum_plot(odd, 20) + curve_plot(odd, curve_scale([odd]), 20)


def test_the_line_of_a_network_starts_at_its_dense_accuracy():
    far, near = Point(5.0, 86.0, "runs/5x"), Point(2.0, 89.0, "runs/2x")
    plot = tradeoff_plot([Series("vgg9", 90.0, (far, near)), Series("resnet20", 91.0, (Point(2.0, 88.0, "runs/r"),))])
    lines = attributes(plot, "curve", "points")
    assert [len(line.split()) for line in lines] == [3, 2]
    across = [float(p.split(",")[0]) for p in lines[0].split()]
    assert across == sorted(across)
    assert lines[0].split()[0].split(",")[0] == lines[1].split()[0].split(",")[0]
    titles = [e.text for e in parsed(plot).iter() if e.tag == "title"]
    assert titles[:3] == ["vgg9, dense: 90.00 %", "runs/2x: 89.00 % at 2.00x", "runs/5x: 86.00 % at 5.00x"]


def test_one_run_at_the_dense_accuracy_is_drawn():
    plot = tradeoff_plot([Series("vgg9", 90.0, (Point(1.0, 90.0, "same"),))])
    assert "nan" not in plot and parsed(plot) is not None


def test_names_are_escaped_in_every_figure():
    unit = replace(UNIT, name=HOSTILE)
    scale = error_scale([unit])
    figures = [width_bar(unit), error_dots(unit, scale), spectrum_plot(unit, 20), curve_plot(unit, scale, 20)]
    figures.append(tradeoff_plot([Series(HOSTILE, 1.0, (Point(2.0, 1.0, HOSTILE),))]))
    for svg in figures:
        assert not re.search(r"<script", svg) and "&lt;script&gt;" in svg
        assert HOSTILE in "".join(parsed(svg).itertext()) + str(parsed(svg).get("aria-label"))
