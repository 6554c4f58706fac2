"""Parts of the pages that are made from the code, a file per part."""
