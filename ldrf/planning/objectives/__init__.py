"""What a plan can be priced in, a file each; every file defines ``ENTRY``."""
