"""Stage 2 of Algorithm 1: R' and Q' of every unit, dense and slim network side by side.

Imports calibration, never planning.
"""
