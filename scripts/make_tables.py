"""Regenerates the tables of README.md and docs/ from scripts/results/; --check only compares."""

import argparse
from pathlib import Path

from bench.tables.documents import documents, fill

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if a table is out of date")
    arguments = parser.parse_args()
    stale = []
    for path in documents(ROOT):
        old = path.read_text(encoding="utf-8")
        new = fill(old, ROOT / "scripts" / "results")
        if new == old:
            continue
        stale.append(str(path.relative_to(ROOT)))
        if not arguments.check:
            path.write_text(new, encoding="utf-8")
    if arguments.check and stale:
        print(f"{', '.join(stale)}: out of date, run python scripts/make_tables.py")
    return 1 if arguments.check and stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
