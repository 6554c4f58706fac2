"""Results, journals and exported files. Imports all stages."""
