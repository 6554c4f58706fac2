"""From a checkpoint to a file that ships: all steps in one call. Imports the engine and the report."""
