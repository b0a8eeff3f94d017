"""Print "passed failed skipped" of a part: count_tests.py RESULTS.xml STATUS.

Reads JUnit XML of pytest or ctest. Without such a file the part counts as one test; a part that
ended badly although no test failed (a build error, a crash) has one failure.
"""

import sys
import xml.etree.ElementTree as ET
from pathlib import Path

SKIPPED = 77


def outcomes(path: Path) -> tuple[int, int, int]:
    passed = failed = skipped = 0
    for case in ET.parse(path).getroot().iter("testcase"):
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            failed += 1
        elif "skipped" in kinds or case.get("status") in ("notrun", "disabled"):
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def main() -> None:
    path, status = Path(sys.argv[1]), int(sys.argv[2])
    passed, failed, skipped = outcomes(path) if path.exists() else (0, 0, 0)
    if status == SKIPPED and not path.exists():
        skipped = 1
    elif status != 0 and failed == 0:
        failed = 1
    elif not path.exists():
        passed = 1
    print(passed, failed, skipped)


if __name__ == "__main__":
    main()
