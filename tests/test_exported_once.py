"""The memory of exports that the other tests rely on: it confuses no two networks, and gives nothing away twice."""

import copy

import pytest
import torch
from exported_once import CheckedOnce, ExportedOnce, likeness, operators_looked_up_once
from networks import Chain, Residual, Tied, images, make
from torch import nn

from ldrf.inputs import Inputs
from ldrf.tracing.export import export_program

BATCH = Inputs((images(4),), {})


@pytest.fixture
def export() -> ExportedOnce:
    return ExportedOnce(export_program)


def text(program) -> list[str]:
    return [node.format_node() or str(node) for node in program.graph.nodes]


@pytest.mark.slow
def test_the_second_export_is_a_graph_of_its_own_with_the_same_nodes(export):
    model = make(Residual)
    first = export(model, BATCH, decomposed=True)
    wanted = text(first)
    first.graph.erase_node(next(n for n in reversed(first.graph.nodes) if not n.users))
    again = export(make(Residual, seed=1), Inputs((images(7),), {}), decomposed=True)  # other values, as many rows
    assert export.hits == 1 and text(again) == wanted == text(export_program(model, BATCH, decomposed=True))
    next(iter(again.graph.nodes)).meta["mark"] = True
    third = export(model, BATCH, decomposed=True)
    assert export.hits == 2 and text(third) == wanted and "mark" not in next(iter(third.graph.nodes)).meta


def narrower(model: Chain) -> None:
    model.fc = nn.Linear(16, 4)


def strided(model: Chain) -> None:
    model.conv1.stride = (2, 2)


def trained(model: Chain) -> None:
    model.bn1.train()


def tied(model: Chain) -> None:
    model.bn2.running_mean = model.bn2.running_var


def noted(model: Chain) -> None:
    vars(model)["note"] = torch.zeros(2)


@pytest.mark.parametrize("change", [narrower, strided, trained, tied, noted])
def test_any_other_network_is_exported(change):
    model = make(Chain)
    changed = copy.deepcopy(model)
    assert likeness(changed, BATCH) == likeness(model, BATCH) is not None
    change(changed)
    assert likeness(changed, BATCH) != likeness(model, BATCH)


def test_other_inputs_and_another_forward_are_exported(monkeypatch):
    model = make(Chain)
    first = likeness(model, BATCH)
    for other in (images(4, shape=(3, 10, 10)), images(4).double()):
        assert likeness(model, Inputs((other,), {})) != first
    assert likeness(model, Inputs((), {"x": images(4)})) != first
    monkeypatch.setattr(Chain, "forward", lambda self, x: self.fc(self.conv1(x).mean((2, 3))))
    assert likeness(model, BATCH) != first


def test_the_values_of_shared_weights_do_not_matter_but_that_they_are_shared():
    apart = make(Tied)
    apart.two.weight = nn.Parameter(apart.one.weight.detach().clone())  # pyright: ignore
    assert likeness(make(Tied), BATCH) == likeness(make(Tied, seed=3), BATCH) != likeness(apart, BATCH)


def test_a_class_within_a_test_is_exported_every_time(export):
    class Own(Chain):
        pass

    for _ in range(2):
        export(make(Own), BATCH)
    assert export.hits == 0 and likeness(make(Own), BATCH) is None


def test_a_slim_model_is_checked_once_for_all_widths():
    checked = []
    check = CheckedOnce(lambda model, _: checked.append(model))
    wide, narrow, other = make(Chain), make(Chain), make(Residual)
    narrow.conv1, narrow.bn1 = nn.Conv2d(3, 4, 3, padding=1).eval(), nn.BatchNorm2d(4).eval()
    for model in (wide, narrow, wide, other):
        check(model, BATCH)
    assert checked == [wide, other]
    vars(wide)["mode"] = "other"
    check(wide, BATCH)
    assert checked == [wide, other, wide], "its code may read that"


def test_a_slim_model_that_cannot_be_exported_is_tried_every_time():
    def refuse(*_: object) -> None:
        raise ValueError

    check = CheckedOnce(refuse)
    for _ in range(2):
        with pytest.raises(ValueError):
            check(make(Chain), BATCH)


def test_operators_that_come_later_are_looked_up_too():
    from torch._export import utils

    def names() -> set[str]:
        return {operator.name() for operator in utils._collect_all_valid_cia_ops()}

    with operators_looked_up_once():
        before = names()
        library = torch.library.Library("ldrf_later", "DEF")
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: 2 * x, "CompositeImplicitAutograd")
        assert names() - before == {"ldrf_later::twice"}
