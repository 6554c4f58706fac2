"""What the files of several methods have in common."""
