"""Rival methods, a file each, on the same units, costs, calibration images and recomposition as ldrf's own."""

from typing import Literal

from ldrf.errors import LdrfError
from ldrf.methods.activation import ACTIVATION
from ldrf.methods.he2017 import HE2017
from ldrf.methods.hu2016 import HU2016
from ldrf.methods.li2017 import LI2017
from ldrf.methods.liu2017 import LIU2017
from ldrf.methods.method import LDRF, Method
from ldrf.methods.molchanov2017 import MOLCHANOV2017
from ldrf.methods.random import RANDOM
from ldrf.methods.thinet import THINET

MethodName = Literal["ldrf", "he2017", "thinet", "molchanov2017", "liu2017", "li2017", "hu2016", "activation", "random"]

METHODS: dict[str, Method] = {
    method.name: method for method in (LDRF, HE2017, THINET, MOLCHANOV2017, LIU2017, LI2017, HU2016, ACTIVATION, RANDOM)
}


def find_method(name: str) -> Method:
    """A method by its name."""
    if name not in METHODS:
        raise LdrfError(f"The 'method' must be one of {', '.join(METHODS)}. Got {name!r} instead.")
    return METHODS[name]
