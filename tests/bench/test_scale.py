"""The benchmark of sharded graphs: records of a small one, and their picture."""

import json

import pytest

import bench_scale


@pytest.mark.parametrize("model", bench_scale.MODELS)
def test_a_small_size_leaves_its_record_and_picture(model, tmp_path, capsys):
    output = tmp_path / "scale.json"
    options = ["--sizes", "small", "--repeats", "1", "--model", model]
    assert bench_scale.main([*options, "--output", str(output)]) == 0
    record = json.loads(output.read_text())
    (found,) = record["records"]
    assert record["made_up"]
    assert json.loads(capsys.readouterr().out) == found
    assert (found["size"], found["ranks"], found["model"]) == ("small", 1, model)
    assert found["edges_of_ranks"][0] == pytest.approx(found["edges"], rel=0.01)
    assert found["ms"] > 0
    assert found["floor"]["ms"] > 0
    picture = tmp_path / "scale.png"
    assert bench_scale.main(["--plot", str(output), "--output", str(picture)]) == 0
    assert picture.stat().st_size > 1000


def test_floors_fall_with_ranks_and_name_what_binds():
    size = bench_scale.SIZES["papers100M"]
    one, two = (bench_scale.floor_of(size, ranks) for ranks in (1, 2))
    assert one["exchange_ms"] == 0
    assert two["ms"] == pytest.approx(one["ms"] / 2)
    # Half of 1.78 GB at 370 GB/s, three times.
    assert two["exchange_ms"] == pytest.approx(3 * 2.4, rel=0.01)
    assert one["bound"] == "random sectors of memory"
    assert bench_scale.floor_of(bench_scale.SIZES["reddit"], 1)["bound"] == "L2 cache"
