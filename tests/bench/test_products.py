"""The benchmark of ways to multiply packed rows: its table and what it makes of failures."""

import json
import stat

from bitgnn.bench.products import products_main, products_table

RESULTS = [
    {"name": "a", "size": 1024, "wrong": 0, "seconds": [3e-6, 1e-6, 2e-6]},
    {"name": "b", "size": 1024, "wrong": 3, "seconds": [1e-6, 1e-6, 1e-6]},
    {"name": "a", "size": 2048, "wrong": 0, "seconds": [1e-5, 1e-5, 1e-5]},
    {"name": "b", "size": 2048, "wrong": 0, "seconds": [1e-5, 1e-5, 1e-5]},
]


def program(folder, text):
    path = folder / "products"
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_record_and_table(tmp_path, capsys):
    output = tmp_path / "products.json"
    arguments = ["--products", str(program(tmp_path, json.dumps(RESULTS))), "--output", str(output)]
    assert products_main(arguments) == 1, "a product was wrong"
    record = json.loads(output.read_text())
    assert record["results"] == RESULTS
    table = products_table(record)
    assert "| a | 2.00 µs (1074 TOPS) | 10.0 µs (1718 TOPS) |" in table
    assert "| b | wrong | 10.0 µs (1718 TOPS) |" in table
    assert table in capsys.readouterr().out


def test_failure(tmp_path, capsys):
    output = tmp_path / "products.json"
    arguments = ["--products", str(program(tmp_path, "no device")), "--output", str(output)]
    assert products_main(arguments) == 1
    assert "failed" in capsys.readouterr().out
    assert not output.exists()
