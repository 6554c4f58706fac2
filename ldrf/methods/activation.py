"""Neurons with the largest mean activation stay, one of the criteria the paper compares with (Tab. 2)."""

from ldrf.methods.cutting import by_criterion, cutting_method

ACTIVATION = cutting_method("activation", by_criterion("activation"))
