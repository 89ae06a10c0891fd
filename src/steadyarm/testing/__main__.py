"""`python -m steadyarm.testing mymodule:MyPolicy`: run all checks on a policy, print a report."""

from __future__ import annotations

import inspect
import sys
import time
import traceback

from steadyarm.errors import SteadyArmError
from steadyarm.policies import policy_from
from steadyarm.testing.policies import CHECKS

USAGE = """usage: python -m steadyarm.testing POLICY [POLICY …]

Runs every check that a policy must satisfy, and says which it does not. POLICY is module:Class,
with the module in this folder or installed, or the name of a policy of SteadyArm."""


def main(given: list[str]) -> int:
    """Print a report on each policy; 1 if any check failed, 2 if there is no such policy."""
    if not given or given[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if given else 2
    try:
        policies = [policy_from(name) for name in given]
    except SteadyArmError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    failed = 0
    for policy in policies:
        print(f"{policy!r}")
        for check in CHECKS:
            began = time.perf_counter()
            promise = inspect.cleandoc(check.__doc__ or "").partition("\n")[0]
            try:
                check(policy)
            except Exception as error:  # a policy may raise anything; the report goes on
                failed += 1
                print(f"  FAILED  {promise}\n{_reason(error)}")
            else:
                print(f"  ok      {promise} ({time.perf_counter() - began:.1f} s)")
    total = len(CHECKS) * len(policies)
    print(f"{total - failed} of {total} checks passed.")
    return 1 if failed else 0


def _reason(error: Exception) -> str:
    """Describe a broken promise; of other errors also where they came from."""
    lines = [f"{type(error).__name__}: {error}" if str(error) else type(error).__name__]
    if not isinstance(error, AssertionError):
        last = traceback.extract_tb(error.__traceback__)[-1]
        lines.append(f"in {last.filename}:{last.lineno}, {last.name}: {last.line}")
    return "\n".join(f"          {line}" for line in lines)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
