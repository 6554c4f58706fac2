"""One self-contained HTML page about one result folder, or about several side by side."""

from ldrf.report.page import write_report

__all__ = ["write_report"]
