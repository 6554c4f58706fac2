"""Stage 1 of Algorithm 1: ranks, error curves and a width for every unit. Imports calibration."""
