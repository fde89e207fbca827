"""Prints the total of several pytest runs in one line: python -m tests.support.total FOLDER

FOLDER contains for each run NAME.xml, its results in JUnit's format, and NAME.code, its exit code.
The exit code is 1 if a test failed, if a run failed for another reason, or if no test ran.
"""

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

PASSED, TESTS_FAILED = 0, 1  # exit codes of pytest


def summarize(folder: Path) -> tuple[str, bool]:
    """The line, and whether all runs have passed."""
    passed, skipped, failed = 0, 0, list[str]()
    for code_file in sorted(folder.glob("*.code")):
        code, failed_before = int(code_file.read_text()), len(failed)
        for case in test_cases(code_file.with_suffix(".xml")):
            outcomes = {child.tag for child in case}
            if outcomes & {"failure", "error"}:
                failed.append(f"{case.get('file', '')}::{case.get('name')} ({code_file.stem})")
            elif "skipped" in outcomes:
                skipped += 1
            else:
                passed += 1
        if code != PASSED and (code != TESTS_FAILED or len(failed) == failed_before):
            failed.append(f"pytest ended with exit code {code} ({code_file.stem})")
    names = f": {', '.join(failed)}" if failed else ""
    line = f"total: {passed} passed, {len(failed)} failed, {skipped} skipped{names}"
    return line, passed > 0 and not failed


def test_cases(path: Path) -> list[ElementTree.Element]:
    """The tests in a file of results; none if pytest ended without writing it."""
    try:
        return list(ElementTree.parse(path).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return []


if __name__ == "__main__":
    line, all_passed = summarize(Path(sys.argv[1]))
    print(line)
    sys.exit(0 if all_passed else 1)
