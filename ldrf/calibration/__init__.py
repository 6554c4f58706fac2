"""Images that the dense network is run on, and what its layers read there. Imports units and files."""
