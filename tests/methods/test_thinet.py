"""One scale per channel repairs a part of the damage, full least squares more."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false

import pytest
from networks import (
    Branches,
    Chain,
    Residual,
)
from rival_checks import halves


@pytest.mark.parametrize("kind", [Chain, Residual, Branches])
def test_repairs_help_on_held_out_images(network, prune_known, kind):
    widths = halves(network(kind))
    results = {name: prune_known(kind, widths=widths, method=name) for name in ("he2017", "thinet")}
    ratio = {
        name: sum(h.error for h in result.history) / sum(h.cut_error for h in result.history)
        for name, result in results.items()
    }
    assert ratio["he2017"] < 0.8 and ratio["thinet"] < 0.98
