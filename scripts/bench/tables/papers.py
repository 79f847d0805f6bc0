"""Tables of docs/papers.md: every row of the five papers, and what of them lost here."""

from __future__ import annotations

import statistics
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import yaml

from bench.report import Record, environment_line, markdown_table, table, versions_of
from bench.tables.figures import MISSING, UNMEASURED, filled
from bitgnn.measure.report import format_bytes, format_ratio, format_seconds

FOLDER = Path(__file__).resolve().parents[1] / "papers"
PAPERS = ("bitgnn", "tcbnn", "bstc", "bincnn", "bwta")
STATES = {
    "C": "complete", "D": "needs data", "H": "needs hardware", "L": "lost here", "O": "open",
}  # fmt: skip
ONCE_MEASURED = "M"
"""State of rows that are complete as soon as all of their records are there, and open before."""


class Row(NamedTuple):
    """One thing that a paper has: where it lives here, its figure, ours, and what differs."""

    name: str
    state: str
    where: str
    paper: str
    ours: str
    differs: str


@cache
def read(name: str) -> tuple[str, tuple[Row, ...]]:
    """Title and rows of a paper, with placeholders for the figures of records."""
    found = yaml.safe_load((FOLDER / f"{name}.yaml").read_text("utf-8"))
    rows = []
    for line in found["rows"].splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) != len(Row._fields) or cells[1] not in {*STATES, ONCE_MEASURED}:
            raise ValueError(f"bench.papers: {name}.yaml: row {line!r} must have six cells")
        rows.append(Row(*cells))
    return found["paper"], tuple(rows)


def paper_rows(name: str, results: Path) -> str:
    """Markdown of one paper: its figures next to ours, which come from the records."""
    title, rows = read(name)
    cells = [
        [
            f"{row.name}: **{STATES[state_of(row, results)]}**",
            row.where,
            "; ".join(
                f"{who}: {text}"
                for who, text in (("paper", row.paper), ("here", filled(row.ours, results)))
                if text
            ),
            filled(row.differs, results),
        ]
        for row in rows
    ]
    found = markdown_table(["row", "where", "figures", "what differs, and why"], cells)
    return f"{title}.\n\n{found.replace('---:', ':---')}"


def state_of(row: Row, results: Path) -> str:
    """Letter of the state that a row is in, with the records that are there."""
    if row.state != ONCE_MEASURED:
        return row.state
    figures = filled(row.ours, results)
    return "O" if UNMEASURED in figures or MISSING in figures else "C"


def counts(results: Path) -> str:
    """Markdown of how many rows each paper has in which state."""
    by_paper = {
        read(name)[0]: Counter(state_of(row, results) for row in read(name)[1]) for name in PAPERS
    }
    by_paper["all"] = sum(by_paper.values(), Counter())
    return table(
        by_paper.items(),
        ("paper", lambda item: item[0]),
        ("rows", lambda item: str(sum(item[1].values()))),
        *((title, lambda item, s=state: str(item[1][s])) for state, title in STATES.items()),
    )


def products_table(record: Record) -> str:
    """Markdown of ways to multiply packed matrices: a row a way, a column a size."""
    sizes = sorted({result["size"] for result in record["results"]})
    times = {(r["name"], r["size"]): statistics.median(r["seconds"]) for r in record["results"]}
    ways = dict.fromkeys(result["name"] for result in record["results"])
    best = list(ways)[-1]
    found = table(
        ways,
        ("bits times bits to int32", str),
        *(
            (
                f"{size}³",
                lambda way, s=size: (
                    f"{format_seconds(times[way, s])} "
                    f"({format_ratio(times[way, s] / times[best, s])})"
                ),
            )
            for size in sizes
        ),
    )
    return (
        f"{environment_line(record)} In brackets the time beside that of the last row.\n\n{found}"
    )


def cooperative_table(record: Record) -> str:
    """Markdown of whole models as one cooperative kernel against the CUDA graph."""

    def beside(result: Record) -> str:
        return format_ratio(result["cooperative"]["median"] / result["ours"]["median"])

    found = table(
        record["results"],
        ("model", lambda r: f"{r['model']} {r['form']}, {r['graph']}, {r['features']}"),
        ("CUDA graph", lambda r: format_seconds(r["ours"]["median"])),
        ("one cooperative kernel", lambda r: format_seconds(r["cooperative"]["median"])),
        ("its time beside", beside),
    )
    return f"{environment_line(record)}\n\n{found}"


def tiles_table(record: Record) -> str:
    """Markdown of FRDC tiles against CSR on a GPU, the three methods in turn."""
    rows = [r for r in record["results"] if r["group"] == "BSpMM layouts"]
    rows = [r for r in rows if "frdc if_else" in r["baselines"]]
    methods = ("if_else", "and_andnot", "and_degree")

    def tiles(result: Record, method: str) -> str:
        seconds = result["baselines"][f"frdc {method}"]["median"]
        csr = result["baselines"]["csr carry_save"]["median"]
        return f"{format_seconds(seconds)} ({format_ratio(seconds / csr)})"

    found = table(
        rows,
        ("sum over neighbours", lambda r: r["name"].replace(" default", "")),
        ("CSR", lambda r: format_seconds(r["baselines"]["csr carry_save"]["median"])),
        *((f"tiles, {m}", lambda r, m=m: tiles(r, m)) for m in methods),
    )
    return f"{environment_line(record)} In brackets the time beside CSR's.\n\n{found}"


def tile_bytes_table(record: Record) -> str:
    """Markdown of the bytes of graphs as tiles and as CSR."""
    found = table(
        record["graphs"],
        ("graph with self-loops", lambda r: r["graph"]),
        ("edges", lambda r: f"{r['edges']}"),
        ("edges a tile", lambda r: f"{r['edges'] / r['tiles']:.2f}"),
        ("CSR", lambda r: format_bytes(r["csr"])),
        ("tiles", lambda r: format_bytes(r["frdc"])),
        ("tiles beside CSR", lambda r: format_ratio(r["frdc"] / r["csr"])),
    )
    return f"{versions_of(record).partition('commit ')[2]}; both without factors.\n\n{found}"
