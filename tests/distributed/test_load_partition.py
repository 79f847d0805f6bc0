"""Files that are missing, cut short, altered, foreign or mixed are refused by name."""

import json
import re
import shutil

import pytest
import torch

from bitgnn import FileError
from bitgnn._checksummed import map_sealed, sealed, sealed_tensors
from bitgnn.distributed import load_partition
from bitgnn.distributed.manifest import META, part_name, read_manifest

PART = part_name(1)


@pytest.fixture
def root(graph, write):
    """A partition in three parts, every kind of tensor in it."""
    return write(graph, 3, x=torch.randn(40, 33), order="dealt", normalize="sym")


def refused(root, match, rank=1):
    with pytest.raises(FileError, match=match):
        load_partition(root, rank, 3)


def rewrite(root, **changes):
    """Change META.json and seal it anew."""
    values = json.loads((root / META).read_text())
    (root / META).write_text(json.dumps(sealed({**values, **changes})))


def forge(root, tensors=None, **changes):
    """A part with other tensors or values, whose checksums fit."""
    found = read_manifest(root)
    held, values, _ = map_sealed(root / PART)
    data = sealed_tensors({**held, **(tensors or {})}, {**values, **changes})
    (root / PART).write_bytes(data)
    entries = [part.model_dump() for part in found.parts]
    digest = map_sealed(root / PART)[2]
    entries[1] = {**entries[1], "bytes": len(data), "sha256": digest}
    rewrite(root, parts=entries)


def test_views_of_the_file_are_private(root):
    before = (root / PART).read_bytes()
    part = load_partition(root, 1, 3)
    part.x.words.zero_()
    part.adjacency.indices.zero_()
    assert (root / PART).read_bytes() == before


def test_a_rank_reads_its_own_parts_alone(root):
    for other in (0, 2):
        (root / part_name(other)).unlink()
    assert len(load_partition(root, 1, 3).nodes) > 0
    refused(root, r"part-00002\.safetensors: is missing, META.json tells of 3 parts", rank=2)
    with pytest.raises(FileError, match=r"part-00000\.safetensors: is missing"):
        load_partition(root, 0, 1)


def test_damaged_parts_are_named(root):
    file = root / PART
    data = file.read_bytes()
    file.write_bytes(data[:-4])
    refused(root, rf"{PART}: has {len(data) - 4} bytes, {len(data)} were written")
    file.write_bytes(b"")
    refused(root, rf"{PART}: has 0 bytes")
    for place in (3, 20, len(data) // 2, len(data) - 1):
        file.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        refused(root, rf"{PART}: (is damaged|has checksum)")
    file.unlink()
    file.symlink_to(root / part_name(0))
    refused(root, rf"{PART}: (must be a regular file|has \d+ bytes)")


def test_foreign_and_mixed_parts_are_named(root, graph, write):
    x = torch.randn(40, 33)
    other = write(graph, 3, x=x, order="dealt", normalize="sym")
    pair = read_manifest(root), read_manifest(other)
    assert [p.bytes for p in pair[0].parts] == [p.bytes for p in pair[1].parts]
    shutil.copy(other / PART, root / PART)
    refused(root, rf"{PART}: has partition {pair[1].job}, must have {pair[0].job} by META.json")
    forge(other, part=2)
    refused(other, rf"{PART}: has part 2, must have 1 by META.json")
    entries = [part.model_dump() for part in pair[0].parts]
    entries[0]["sha256"] = entries[2]["sha256"]
    rewrite(root, parts=entries)
    refused(root, r"part-00000\.safetensors: has checksum \w+, must have \w+ by", rank=0)


@pytest.mark.parametrize(
    ("tensors", "match"),
    [
        ({"words": torch.zeros(14, 1, dtype=torch.int32)}, "must hold .*words"),
        ({"more": torch.zeros(1)}, "must hold .*more"),
        ({"nodes": 40}, "nodes must lie in"),
        ({"indices": -1}, "indices must lie in"),
        ({"rowptr": 0}, "rowptr must end at the number of edges"),
        ({"words": -1}, "padding bits must be 0"),
    ],
)
def test_tensors_under_fitting_checksums_are_checked(root, tensors, match):
    held = map_sealed(root / PART)[0]
    made = {
        name: torch.full_like(held[name], value) if isinstance(value, int) else value
        for name, value in tensors.items()
    }
    forge(root, made)
    refused(root, match)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"version": 2}, "version 2 is unknown, this version of bitgnn reads 1"),
        ({"version": True}, "version True is unknown"),
        ({"format": "other"}, "must have format 'bitgnn.partition', got 'other'"),
        ({"num_parts": 4}, "parts and starts do not fit num_parts 4"),
        ({"num_edges": 1}, "edges of the parts must add up to num_edges 1"),
        ({"num_nodes": 41}, "starts must rise from 0 to num_nodes 41"),
        ({"starts": [0, 30, 20, 40]}, "starts must rise from 0 to num_nodes 40"),
        ({"starts": "many"}, "starts: "),
        ({"order": "metis"}, "order: "),
        ({"parts": [{}]}, r"parts\.0\.bytes: Field required"),
        ({"further": 1}, "further: Extra inputs are not permitted"),
        ({"num_features": 65}, r"part-00001\.safetensors: must hold .*words"),
        ({"order": "range"}, r"part-00001\.safetensors: must hold"),
        ({"starts": [0, 1, 27, 40]}, r"part-00001\.safetensors: must hold"),
    ],
)
def test_manifests_that_do_not_fit_are_refused(root, changes, match):
    rewrite(root, **changes)
    refused(root, match)


def test_manifests_that_are_damaged_are_refused(root):
    text = (root / META).read_text()
    (root / META).write_text(text.replace('"num_nodes": 40', '"num_nodes": 41'))
    refused(root, r"META\.json: was altered, its checksum does not fit")
    for damaged in ("", "{", "[]", re.sub(r',\s+"sha256": "\w+"\s+}$', "}", text.strip())):
        (root / META).write_text(damaged)
        refused(root, r"META\.json: (is not valid JSON|has no checksum)")
    (root / META).unlink()
    refused(root, r"META\.json: is missing: no finished partition")
    with pytest.raises(FileError, match=r"META\.json: is missing"):
        load_partition(root / "nowhere", 0, 1)


@pytest.mark.parametrize(("rank", "world_size"), [(-1, 2), (2, 2), (0, 0)])
def test_ranks_outside_of_the_world_are_refused(root, rank, world_size):
    with pytest.raises(ValueError, match=rf"rank must lie in \[0, world_size {world_size}\)"):
        load_partition(root, rank, world_size)
