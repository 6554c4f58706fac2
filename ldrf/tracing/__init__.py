"""The network as a list of calls: exported, run with other weights, counted. Imports runtime."""
