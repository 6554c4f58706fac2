"""Stage 3 of Algorithm 1: W' = Q'R' in a copy of the user's model, chosen and verified. Imports reconstruction."""
