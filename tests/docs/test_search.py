"""The search of the site finds the right page first, also for terms of other tools."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

TERMS = {
    "A/A test": "run/ab_test/",
    "A/B test": "run/ab_test/",
    "best-arm identification": "research/policies/",
    "confidence interval": "concepts/intervals/",
    "confidence sequence": "concepts/intervals/",
    "CUPED": "run/covariates/",
    "variance reduction": "run/covariates/",
    "delayed conversions": "run/delayed_rewards/",
    "false discovery rate": "concepts/intervals/",
    "feature flag": "integrate/openfeature/",
    "guardrail": "run/metrics/",
    "non-inferiority": "run/metrics/",
    "winsorize": "run/metrics/",
    "holdout": "run/after_the_test/",
    "interim analysis": "run/stopping/",
    "peeking": "run/stopping/",
    "sequential testing": "run/stopping/",
    "MDE": "run/plan/",
    "minimum detectable effect": "run/plan/",
    "power": "run/plan/",
    "sample size": "run/plan/",
    "multi-armed bandit": "concepts/",
    "non-stationarity": "concepts/",
    "unit": "concepts/",
    "mutual exclusion": "run/live/",
    "novelty effect": "run/health/",
    "sample ratio mismatch": "run/health/",
    "SRM": "run/health/",
    "p-value": "run/verdict/",
    "statistical significance": "run/verdict/",
    "switchback": "analyze/",
    "variant": "run/variants/",
}


def test_the_right_page_comes_first(built: Path) -> None:
    script = Path(__file__).parent / "search.mjs"
    run = subprocess.run(
        ["node", script, built, *TERMS], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert {term: pages[:1] for term, pages in found.items()} == {
        term: [page] for term, page in TERMS.items()
    }


def test_the_glossary_has_the_terms() -> None:
    glossary = (Path(__file__).parents[2] / "docs/glossary.md").read_text().lower()
    missing = [term for term in TERMS if term.lower() not in glossary]
    assert missing == ["delayed conversions"]
