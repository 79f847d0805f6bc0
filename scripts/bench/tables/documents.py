"""Turns benchmark records into the marked sections of documents: no number is typed by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from bench.report import Record
from bench.tables.defaults import default_table, headline_table
from bench.tables.ensembles import ensembles_table, images_table, ranks_table
from bench.tables.layer_zoo import layer_zoo_table
from bench.tables.models import memory_table, models_table
from bench.tables.networks import bnn_table, parts_table
from bench.tables.operators import (
    cases_table,
    conversion_table,
    cuda_profile_table,
    profile_table,
)
from bench.tables.paper_times import (
    counters_table,
    groups_table,
    product_parts_table,
    waits_table,
)
from bench.tables.papers import (
    PAPERS,
    cooperative_table,
    counts,
    paper_rows,
    products_table,
    tile_bytes_table,
    tiles_table,
)
from bench.tables.plain_loop import (
    depth_table,
    distilled_table,
    paper_table,
    papers_networks_table,
    plain_loop_table,
    students_table,
    study_table,
)
from bench.tables.scale import scale_table
from bench.tables.timings import (
    attention_table,
    calls_table,
    decoder_speed_table,
    hamming_table,
    sampling_table,
    stream_table,
    training_steps_table,
)
from bench.tables.tuner import tuner_table
from bench.tables.variants import variants_table
from bench.tables.wins import wins_table
from bench.tables.zoo import zoo_table

NOT_MEASURED = "Not measured yet.\n"
ONE: Mapping[str, tuple[str, Callable[[Record], str]]] = {
    "ops": ("ops", cases_table),
    "ops_cuda": ("ops_cuda", cases_table),
    "profile_cuda": ("profile_cuda", cuda_profile_table),
    "models": ("models_cpu", models_table),
    "models_cuda": ("models_cuda", models_table),
    "profile": ("profile_cpu", profile_table),
    "bnn_cuda": ("bnn_cuda", bnn_table),
    "bnn_parts": ("bnn_cuda", parts_table),
    "bnn_cpu": ("bnn_cpu", bnn_table),
    "bwta_cuda": ("bwta_cuda", bnn_table),
    "bwta_cpu": ("bwta_cpu", bnn_table),
    "layers": ("layers", partial(cases_table, subject="layer")),
    "conversion": ("conversion", conversion_table),
    "table3": ("table3", paper_table),
    "papers_networks": ("papers_networks", papers_networks_table),
    "plain_loop": ("plain_loop", plain_loop_table),
    "plain_loop_depth": ("plain_loop_depth", plain_loop_table),
    "distilled": ("distilled", distilled_table),
    "distilled_cpu": ("distilled_cpu", distilled_table),
    "distilled_study": ("distilled_study", study_table),
    "distilled_variants": ("distilled_variants", variants_table),
    "distilled_again": ("distilled_again", variants_table),
    "distilled_images": ("distilled_images", students_table),
    "distilled_texts": ("distilled_texts", students_table),
    "default_cpu": ("default_cpu", default_table),
    "default_cuda": ("default_cuda", default_table),
    "depth": ("depth", depth_table),
    "ensembles": ("ensembles", ensembles_table),
    "ensembles_images": ("ensembles_images", images_table),
    "layer_zoo": ("layer_zoo", layer_zoo_table),
    "decoder_cuda": ("decoder_cuda", decoder_speed_table),
    "calls_cuda": ("calls_cuda", calls_table),
    "calls_cpu": ("calls_cpu", calls_table),
    "attention_cuda": ("attention_cuda", attention_table),
    "hamming_cpu": ("hamming_cpu", hamming_table),
    "hamming_cuda": ("hamming_cuda", hamming_table),
    "sampling": ("sampling", sampling_table),
    "training_steps": ("training_cuda", training_steps_table),
    "wins": ("wins_cuda", wins_table),
    "tuner": ("tuner", tuner_table),
    "one_image_cpu": ("papers_cpu", lambda record: groups_table(record, "network")),
    "one_image_cuda": ("papers_cuda", lambda record: groups_table(record, "network")),
    "papers_graphs": ("papers_cuda", lambda record: groups_table(record, "graphs")),
    "papers_sweeps": ("papers_cuda", lambda record: groups_table(record, "BMM")),
    "bincnn_layers": ("papers_cuda", lambda record: groups_table(record, "BinCNN, layers")),
    "bincnn_layers_cpu": ("papers_cpu", lambda record: groups_table(record, "BinCNN, layers")),
    "papers_parts": ("papers_cuda", product_parts_table),
    "ensembles_ranks": ("ensembles_ranks", ranks_table),
    "counters_cuda": ("counters_cuda", counters_table),
    "waits_cuda": ("waits_cuda", waits_table),
    "distilled_falling": ("distilled_falling", students_table),
    "products": ("products_cuda", products_table),
    "cooperative": ("cooperative_cuda", cooperative_table),
    "tiles": ("ops_cuda", tiles_table),
    "tile_bytes": ("frdc_bytes", tile_bytes_table),
}
"""Tables of one record: its name, and what makes the table."""
SEVERAL: Mapping[str, tuple[str, Callable[[Sequence[Record]], str]]] = {
    "headline": ("default_cpu default_cuda", headline_table),
    "models_memory": ("models_c*", memory_table),
    "scale": ("scale_1 scale_2", scale_table),
    "stream": ("stream_c*", stream_table),
}
"""Tables of several records: patterns of their names, and what makes the table."""
FROM_ALL: Mapping[str, Callable[[Path], str]] = {
    "zoo": zoo_table,
    "papers_counts": counts,
    **{f"papers_{name}": partial(paper_rows, name) for name in PAPERS},
}
"""Tables with figures of many records: what makes one from the folder of all of them."""
TABLES = (*ONE, *SEVERAL, *FROM_ALL)


def read_records(results: Path, patterns: str) -> list[Record]:
    """The records in folder ``results`` whose names fit one of the patterns, in their order."""
    paths = [p for pattern in patterns.split() for p in sorted(results.glob(f"{pattern}.json"))]
    return [json.loads(path.read_text("utf-8")) for path in paths]


def section(name: str, results: Path) -> str:
    """The text between the markers of table ``name``, from the records in folder ``results``."""
    if name in FROM_ALL:
        return FROM_ALL[name](results)
    records = read_records(results, (ONE[name] if name in ONE else SEVERAL[name])[0])
    if not records:
        return NOT_MEASURED
    return ONE[name][1](records[0]) if name in ONE else SEVERAL[name][1](records)


def documents(root: Path) -> list[Path]:
    """Documents of a checkout that have tables."""
    found = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    return [path for path in found if "<!-- table:" in path.read_text("utf-8")]


def fill(text: str, results: Path) -> str:
    """``text`` with every section ``<!-- table:NAME --> … <!-- /table:NAME -->`` made anew."""
    unknown = set(re.findall(r"<!-- /?table:(\w+) -->", text)) - set(TABLES)
    if unknown:
        raise ValueError(f"bench.fill: unknown tables {sorted(unknown)}, known: {sorted(TABLES)}")
    if not re.search(r"<!-- table:\w+ -->", text):
        raise ValueError("bench.fill: the text has no marker <!-- table:NAME -->")
    for name in TABLES:
        begin, end = f"<!-- table:{name} -->", f"<!-- /table:{name} -->"
        if begin not in text and end not in text:
            continue
        if text.count(begin) != 1 or text.count(end) != 1:
            raise ValueError(f"bench.fill: {begin} and {end} must each stand once in the text")
        head, rest = text.split(begin)
        tail = rest.partition(end)[2]
        text = f"{head}{begin}\n\n{section(name, results)}\n{end}{tail}"
    return text
