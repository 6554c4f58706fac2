"""Adapters from :mod:`ldrf.events` to other tools; each is imported only by those who use it."""
