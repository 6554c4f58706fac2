"""Linear algebra and descent on plain tensors, with no graph in sight. Imports runtime."""
