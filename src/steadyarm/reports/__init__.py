"""Reports: a document of plain values, written as one HTML page or as Markdown with pictures."""

from steadyarm.reports.analysis import analysis_report
from steadyarm.reports.document import FORMATS, Document, format_of, write_report
from steadyarm.reports.experiment import experiment_report
from steadyarm.reports.plan import plan_report

__all__ = [
    "FORMATS",
    "Document",
    "analysis_report",
    "experiment_report",
    "format_of",
    "plan_report",
    "write_report",
]
