"""Checks before a job, each answered in one plain line; the exit status is the number that failed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Finding", "Report", "checked", "root_error"]


@dataclass(frozen=True)
class Finding:
    """One check: what it looked at, whether it is as it should be, and what was found or what to do.

    Examples:
        >>> from bipace.integrations.common.preflight import Finding
        >>> str(Finding("model", False, "no chat template"))
        'FAILED model: no chat template'
    """

    name: str
    passed: bool
    text: str

    def __str__(self) -> str:
        return f"{'ok    ' if self.passed else 'FAILED'} {self.name}: {self.text}"


def checked(name: str, check: Callable[[], str]) -> Finding:
    """The finding of one check, which returns what it found and raises what is wrong.

    Examples:
        >>> from bipace.integrations.common.preflight import checked
        >>> str(checked("versions", lambda: "engine 2.1.0"))
        'ok     versions: engine 2.1.0'
    """
    try:
        return Finding(name, True, check())
    except Exception as error:  # whatever is wrong with a machine is a finding, not the end of the checks
        return Finding(name, False, f"{type(error).__name__}: {error}")


@dataclass
class Report:
    """Prints findings as they come and counts those that failed.

    Examples:
        >>> from bipace.integrations.common.preflight import Finding, Report
        >>> Report([Finding("model", False, "no chat template")]).failed
        1
    """

    findings: list[Finding] = field(default_factory=list[Finding])

    def add(self, finding: Finding) -> None:
        """Print one finding and keep it."""
        self.findings.append(finding)
        print(finding, flush=True)

    @property
    def failed(self) -> int:
        """How many checks failed so far."""
        return sum(not finding.passed for finding in self.findings)

    def close(self) -> int:
        """Print the last line; returns the number of failed checks."""
        print(f"{self.failed} of {len(self.findings)} checks failed" if self.failed else "ready")
        return self.failed


def root_error(log: str) -> str | None:
    """The error that a job's output ends in: the last line that names an exception, without Ray's prefix.

    Ray's own wrapper (`ray.exceptions...`) says less than the error it wraps and is passed over. None where
    no line names an exception.

    Examples:
        >>> from bipace.integrations.common.preflight import root_error
        >>> root_error("ValueError: the cause")
        'ValueError: the cause'
    """
    plain = re.sub(r"\x1b\[[0-9;]*m", "", log)
    lines = [re.sub(r"^\([\w:.]+ pid=\d+[^)]*\)", "", line).strip() for line in plain.splitlines()]
    named = [line for line in lines if re.match(r"(?!ray\.)[\w.]*(Error|Exception)\b[^(]*(: |$)", line)]
    return named[-1] if named else None
