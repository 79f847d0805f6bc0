"""META.json: sizes, ranges of rows, order and checksums of a partition, checked when read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bitgnn._checksummed import check_seal, migrated, sealed
from bitgnn._files import FileError, read_regular, write_atomically
from bitgnn._plain import parse_json
from bitgnn.distributed.row_order import Order

META = "META.json"
FORMAT: Literal["bitgnn.partition"] = "bitgnn.partition"
VERSION = 1
MAX_PARTS = 1 << 16
MAX_NODES = 1 << 31

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class PartEntry(_Strict):
    """File of one part: its bytes, edges, and the checksum that it carries."""

    bytes: Count
    edges: Count
    sha256: Digest


class Manifest(_Strict):
    """Contents of META.json.

    Attributes:
        source: name of the graph; ``is_synthetic`` is True for a made-up one.
        num_features: bits of a node, None without features; ``is_scaled`` tells of their scales.
        factors: names of the factors that parts hold, ``"row_scale"`` and ``"col_scale"``.
        job: digest of everything that the parts were made of.
        starts: first row of each part, and the number of nodes at the end.
    """

    format: Literal["bitgnn.partition"]
    version: int
    source: str
    is_synthetic: bool
    num_nodes: Annotated[int, Field(ge=0, le=MAX_NODES)]
    num_edges: Count
    num_parts: Annotated[int, Field(ge=1, le=MAX_PARTS)]
    order: Order
    undirected: bool
    add_self_loops: bool
    normalize: Literal["sym", "mean"] | None
    num_features: Count | None
    is_scaled: bool
    factors: list[Literal["row_scale", "col_scale"]]
    job: Digest
    starts: list[Count]
    parts: list[PartEntry]

    @model_validator(mode="after")
    def _fits(self) -> Manifest:
        if len(self.parts) != self.num_parts or len(self.starts) != self.num_parts + 1:
            raise ValueError(f"parts and starts do not fit num_parts {self.num_parts}")
        ends = self.starts[0], self.starts[-1]
        if ends != (0, self.num_nodes) or sorted(self.starts) != self.starts:
            raise ValueError(f"starts must rise from 0 to num_nodes {self.num_nodes}")
        if sum(part.edges for part in self.parts) != self.num_edges:
            raise ValueError(f"edges of the parts must add up to num_edges {self.num_edges}")
        return self


def part_name(part: int) -> str:
    """Name of a part's file."""
    return f"part-{part:05d}.safetensors"


def write_manifest(root: Path, manifest: Manifest) -> None:
    """Write META.json under its own checksum."""
    text = json.dumps(sealed(manifest.model_dump()), indent=2) + "\n"
    write_atomically(root / META, text.encode(), durable=True)


def read_manifest(root: Path) -> Manifest:
    """Read META.json.

    Raises ``FileError`` where it is missing, damaged, altered, of another format or version, or
    does not fit itself.
    """
    file = root / META
    try:
        text = read_regular(file)
    except (FileNotFoundError, NotADirectoryError):
        raise FileError(f"{file}: is missing: no finished partition") from None
    values = check_seal(parse_json(text, file), file)
    if values.get("format") != FORMAT:
        raise FileError(f"{file}: must have format {FORMAT!r}, got {values.get('format')!r}")
    values = migrated(values, "version", VERSION, {}, file)
    try:
        return Manifest(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise FileError(f"{file}: {name}{': ' if name else ''}{first['msg']}") from None
