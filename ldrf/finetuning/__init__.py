"""Training a slim model further, with or without labels. Imports saving."""
