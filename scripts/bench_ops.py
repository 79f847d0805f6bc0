"""Times pack, BMM and BSpMM against torch: JSON, table and chart."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.cases import run_cases, run_cuda_case
from bench.command import parse, record
from bench.cuda_ceilings import measure_ceilings
from bench.entry import exits_with_status, report_left_out, save_record
from bench.operators import cpu, cuda, cuda_graphs
from bench.report import bar_chart, fraction_chart
from bench.tables.documents import cases_table


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the operator benchmark; the exit status."""
    arguments = parse("Times bitgnn's operators against torch.", "ops", argv, devices=True)
    if arguments.device == "cuda":
        return _cuda_operators(arguments)
    sizes = cpu.QUICK if arguments.quick else cpu.Sizes()
    body = run_cases(cpu.cases(sizes, arguments.data_root), repeats=arguments.repeats)
    found = record("ops", arguments, **body)
    title = f"Operators, {arguments.threads} threads"
    _save(found, cases_table(found), arguments.output, title)
    return report_left_out(found)


def _cuda_operators(arguments: argparse.Namespace) -> int:
    """Ceilings, then every case against them; what was done is on disk after each group."""
    ceilings = measure_ceilings(arguments.ceilings)
    sizes = cuda.QUICK if arguments.quick else cuda.Sizes()
    body: dict[str, list[Any]] = {"results": [], "skipped": []}
    for cases in (
        cuda.dense_cases(sizes, ceilings),
        cuda_graphs.graph_cases(ceilings, arguments.data_root, arguments.quick),
    ):
        done = run_cases(
            cases,
            run=run_cuda_case,
            repeats=arguments.repeats,
        )
        for key, entries in done.items():
            body[key] += entries
        found = record("ops_cuda", arguments, **body, ceilings=ceilings.entries)
        save_record(arguments.output, found)
    table = cases_table(found)
    arguments.output.with_suffix(".md").write_text(table, encoding="utf-8")
    fraction_chart(
        arguments.output.with_suffix(".png"),
        [
            (f"{r['group']}: {r['name']}", r["ceiling_fraction"], r["binds"])
            for r in found["results"]
            if r["ceiling_fraction"] is not None
        ],
        f"Measured rate over ceiling measured in the same run, {found['environment']['gpu']}",
    )
    print(f"\n{table}\nwritten: {arguments.output} and its .md and .png")
    return report_left_out(found)


def _save(found: dict[str, Any], table: str, output: Path, title: str) -> None:
    """Writes the record, its table and its chart side by side and prints the table."""
    save_record(output, found)
    output.with_suffix(".md").write_text(table, encoding="utf-8")
    results = found["results"]
    bar_chart(
        output.with_suffix(".png"),
        [f"{result['group']}: {result['name']}" for result in results],
        [result["ratio"] for result in results],
        [result["target"] for result in results],
        title,
    )
    print(f"\n{table}\nwritten: {output} and its .md and .png")


if __name__ == "__main__":
    raise SystemExit(main())
