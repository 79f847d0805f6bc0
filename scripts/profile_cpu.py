"""Sets CPU figures against the machine's own rates: JSON in scripts/results."""

from bitgnn.bench.command import profile_main

if __name__ == "__main__":
    raise SystemExit(profile_main())
