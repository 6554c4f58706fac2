"""Files that are written whole and read with care: JSON, tensors, checksums, result folders. Imports errors only."""
