"""Networks to try ldrf on, and how they are trained."""
