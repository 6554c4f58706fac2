"""A unit as it is told to a person: the layers it cuts, and those that keep their width."""

from networks import Bottleneck, Chain

from ldrf.tracing.interpreter import read_tensor
from ldrf.units.unit import Skipped, left_alone, left_coupled, row_slices


def test_one_layer_keeps_its_width_and_several_keep_theirs():
    one, two = Skipped("a\x1b", "it is an output"), Skipped("b", "it is called twice")
    assert left_alone([]) == []
    assert left_alone([one]) == ["", "1 layer keeps its width:", r"  a\x1b: it is an output"]
    assert left_alone([one, two])[1] == "2 layers keep their width:"


def test_slices_along_the_outputs_name_every_tensor_that_has_one_number_for_each(network):
    net = network(Chain)
    unit = net.units[0]
    slices = row_slices(unit.producer, unit.neuron_of_output)
    assert {piece.tensor for piece in slices} == {"conv1.weight", *(f"bn1.{n}" for n in NORM)}
    assert all(read_tensor(net.model, piece.tensor).shape[piece.dim] == unit.width for piece in slices)


NORM = ("weight", "bias", "running_mean", "running_var")


def test_a_coupled_unit_names_all_that_makes_it_and_each_says_with_whom_it_is_tied(network):
    (unit,) = network(Bottleneck).coupled
    assert unit.makers == ("down", "conv3") or unit.makers == ("conv3", "down")
    reasons = {skip.name: skip.reason for skip in left_coupled(unit)}
    assert "'down'" in reasons["conv3"] and "'conv3'" in reasons["down"]
    assert all("coupled=True" in reason for reason in reasons.values())


def test_reasons_that_differ_in_names_alone_are_told_once():
    tied = [Skipped(f"layers.{i}.down", f"it is added to 'layers.{i}.up', so it stays") for i in range(5)]
    other = [Skipped("a", "it is added to 'b', so it stays"), Skipped("head", "it is an output")]
    assert left_alone(tied)[2:] == [
        "  layers.0.down, layers.1.down, layers.2.down and 2 more: it is added to 'layers.*.up', so it stays"
    ]
    told = left_alone([*tied[:1], *other])
    assert told[1:] == [
        "3 layers keep their width:",
        "  layers.0.down, a: it is added to another layer, so it stays",
        "  head: it is an output",
    ]
