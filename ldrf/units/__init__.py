"""What is cut together, checked on the model itself, and how its tensors are cut. Imports channels and algebra."""
