"""Accuracy, latency and memory of dense and slim networks. Imports saving."""
