"""Regenerates the tables of README.md from scripts/results/*.json; --check only compares."""

import argparse
from pathlib import Path

from bitgnn.bench.tables import fill

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if README.md is out of date")
    arguments = parser.parse_args()
    readme = ROOT / "README.md"
    old = readme.read_text(encoding="utf-8")
    new = fill(old, ROOT / "scripts" / "results")
    if arguments.check and new != old:
        print("README.md does not match scripts/results: run python scripts/make_tables.py")
        return 1
    if new != old:
        readme.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
