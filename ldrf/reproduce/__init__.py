"""The paper's tables and figures made again: recipes of cells, run one by one, kept, and folded into a page."""
