"""From values to steps: which are bits, which thresholds, and what each step holds."""
