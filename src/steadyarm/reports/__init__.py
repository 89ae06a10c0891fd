"""Reports: one HTML page each, with its charts inside, to send or print."""

from steadyarm.reports.experiment import experiment_report
from steadyarm.reports.offline import analysis_report, plan_report
from steadyarm.reports.render import check_path, write_report

__all__ = ["analysis_report", "check_path", "experiment_report", "plan_report", "write_report"]
