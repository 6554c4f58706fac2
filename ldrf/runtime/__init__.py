"""What the machine gives: processes that work together, memory, randomness, progress and tables.

Imports errors and inputs only.
"""
