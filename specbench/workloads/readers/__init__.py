"""Readers of request files, strict and by content: `read`, `scan` and `sniff` are the front door."""

from specbench.workloads.readers.errors import ReadError
from specbench.workloads.readers.reading import OnBadRow, Scan, read, scan, sniff
from specbench.workloads.readers.registry import FORMATS

__all__ = ["FORMATS", "OnBadRow", "ReadError", "Scan", "read", "scan", "sniff"]
