"""The table of operators: one row holds all that has to be known of an ATen operator or of one's own.

The rows are written in ``channels/operators.py``, beside the channel rules they name; a call without a row is run as
it stands, and whatever channels reach it keep their number.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, Literal

from torch import fx

from ldrf.tracing.narrowing import SizeRule
from ldrf.tracing.operations import operation

Kind = Literal["moves", "scales", "linear", "product", "activation", "other"]


@dataclass(frozen=True)
class Operator:
    """One operator: what it does to channels, how the sizes in its arguments shrink, and what kind of function it is.

    ``channels`` is the channel rule. It is called with what is known so far, the call, and the channels that arrive
    at it, and it returns the channels of the result (a list for several results, None where channels end).

    ``sizes`` is the size rule of an operator that states sizes in its arguments, as a view does. It gets the call
    that is about to run and returns the arguments that change, by name.

    ``kind`` says what the operator computes:

    - ``"moves"``: values go elsewhere and stay as they are, as in a view, a permutation or a split
    - ``"scales"``: a product or quotient, which with a single operand scales it as a whole
    - ``"linear"``: sums of values, the same for every channel, as in a mean over positions
    - ``"product"``: a matrix product, which is linear in each of its two operands
    - ``"activation"``: a function of single values that follows a layer
    - ``"other"``: anything else

    ``runs_as`` is called in place of the operator with the same positional arguments: a view of a map that lies in
    memory in another order than the traced one has to be a reshape.
    """

    channels: Callable[..., Any]
    sizes: SizeRule | None = None
    kind: Kind = "other"
    runs_as: Callable[..., Any] | None = None

    @property
    def is_linear(self) -> bool:
        """Whether the result is linear in the values, with the same weights for every channel."""
        return self.kind in ("moves", "linear")


class OperatorTable:
    """Rows by the name of the operator without its overload, as in "aten.relu".

    The built-in rows are ``ROWS`` of ``module``, which is imported when a row is first asked for.
    """

    def __init__(self, module: str) -> None:
        self.module = module
        self.registered: dict[str, Operator] = {}

    @cached_property
    def built_in(self) -> Mapping[str, Operator]:
        return import_module(self.module).ROWS

    def find(self, name: str) -> Operator | None:
        """The row of this name; one that was registered comes before one that is built in."""
        return self.registered.get(name) or self.built_in.get(name)


OPERATORS = OperatorTable("ldrf.channels.operators")


def operator_of(node: fx.Node) -> Operator | None:
    """The row of a call's operator, if it has one."""
    return OPERATORS.find(operation(node))


def kind_of(node: fx.Node) -> Kind:
    """What kind of function a call is; "other" where its operator has no row."""
    operator = operator_of(node)
    return operator.kind if operator else "other"
