"""The version, as it was built from the last tag (``build_version.py``)."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("ldrf")
except PackageNotFoundError:  # a folder of modules that was never installed
    __version__ = "0+unknown"
