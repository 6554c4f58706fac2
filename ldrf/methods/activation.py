"""Neurons with the largest mean activation stay, one of the criteria the paper compares with (Tab. 2)."""

from ldrf.methods.shared.cutting import by_criterion, cutting_method

ENTRY = cutting_method("activation", "activation", "#9a9a9a", by_criterion("activation"))
