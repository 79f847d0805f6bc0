"""The table of default models' times beside those of the papers'."""

from bench.tables.timings import default_speed_table


def record(gpu):
    times = {"default": 2e-5, "papers": 1e-5, "default, full": 3e-5, "papers, full": 4e-5}
    case = {
        "graph": "Cora", "nodes": 2708, "features": 1433,
        "times": {form: {"median": seconds} for form, seconds in times.items()},
    }  # fmt: skip
    return {
        "environment": {
            "cpu": "Some CPU", "capability": "avx2", "threads": 2, "gpu": gpu,
            "date": "2026-01-02T03",
            "commit": "0123456789abcdef", "versions": {"torch": "2.13.0"},
        },
        "cases": [{**case, "layer": layer} for layer in ("GCNConv", "SAGEConv")],
    }  # fmt: skip


def test_each_form_stands_beside_its_ratio():
    where, _, *table = default_speed_table(record("Some GPU")).splitlines()
    assert where == "Some GPU, torch 2.13.0, commit 0123456789, 2026-01-02; medians."
    cells = [cell.strip() for cell in table[-1].strip("|").split("|")]
    assert cells == ["Cora (2708 × 1433)", *["20.0 µs", "2.00×", "30.0 µs", "0.75×"] * 2]
    assert "Some CPU (avx2), 2 threads" in default_speed_table(record(None))
