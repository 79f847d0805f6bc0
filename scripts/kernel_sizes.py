"""Bytes of compiled CUDA kernels by family and by file, for each GPU and for host code.

Usage: python scripts/kernel_sizes.py OBJECTS_DIR      the objects that build_cuda.sh leaves
"""

from __future__ import annotations

import struct
import sys
from collections import Counter, defaultdict
from pathlib import Path

LARGEST_FILES = 15
# Layout of device code: containers of entries, of which one is made for a GPU or for later ones.
MAGIC = 0xBA55ED50
CONTAINER = struct.Struct("<IHHQ")  # magic, version, size of this header, size of the entries
ENTRY = struct.Struct("<HHIQ12xI")  # kind, version, size of this header, of the code; capability
PTX = 1


def device_bytes(fatbin: bytes) -> Counter[str]:
    """Bytes in a section of device code, by target such as ``"sm_80"`` or ``"PTX 80"``."""
    found: Counter[str] = Counter()
    start = 0
    while start + CONTAINER.size <= len(fatbin):
        magic, _, header, size = CONTAINER.unpack_from(fatbin, start)
        if magic != MAGIC:  # padding between containers
            start += 8
            continue
        position, end = start + header, start + header + size
        while position < end:
            kind, _, header, code, capability = ENTRY.unpack_from(fatbin, position)
            found[f"PTX {capability}" if kind == PTX else f"sm_{capability}"] += header + code
            position += header + code
        start = end
    return found


def object_bytes(path: Path) -> Counter[str]:
    """Bytes of an object that reach the library: device code by target, host code and tables."""
    from elftools.elf.elffile import ELFFile  # comes with auditwheel

    with path.open("rb") as file:
        elf = ELFFile(file)
        fatbin = elf.get_section_by_name(".nv_fatbin")
        found = device_bytes(fatbin.data()) if fatbin else Counter()
        names = (".text", ".rodata", ".data", ".eh_frame", ".gcc_except_table")
        found["host"] = sum(s.data_size for s in elf.iter_sections() if s.name.startswith(names))
    return found


def table(rows: dict[str, Counter[str]]) -> list[str]:
    """Lines of kilobytes, largest first."""
    columns = sorted(
        {name for sizes in rows.values() for name in sizes}, key=lambda n: (n == "host", n)
    )
    lines = [f"{'kB':<44}" + "".join(f"{name:>9}" for name in [*columns, "total"])]
    for name, sizes in sorted(rows.items(), key=lambda row: -row[1].total()):
        numbers = [*(sizes[column] for column in columns), sizes.total()]
        lines.append(f"{name:<44}" + "".join(f"{number / 1000:>9.0f}" for number in numbers))
    return lines


def main(folder: Path) -> None:
    """Print both tables for a folder of objects."""
    files = {path.name.removesuffix(".o"): object_bytes(path) for path in folder.glob("*.o")}
    if not files:
        sys.exit(f"{folder} holds no objects: run scripts/build_cuda.sh first")
    families: dict[str, Counter[str]] = defaultdict(Counter)
    for name, sizes in files.items():
        families[name.split("-")[0]] += sizes
        families["all"] += sizes
    largest = dict(sorted(files.items(), key=lambda row: -row[1].total())[:LARGEST_FILES])
    print(*table(families), "", *table(largest), sep="\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
