"""The predictor finds rules that hold on graphs it has not seen, and says how far it is off."""

import json
import math

import pytest

from bitgnn.inference.predictor import STATISTICS, Predictor, Way
from bitgnn.tune.recording import BENCHMARK, FORMAT
from bitgnn.tune.train_predictor import (
    USUAL,
    Forward,
    Regret,
    best_ridge,
    choices,
    forwards_of,
    held_out,
    train,
    train_predictor_main,
    write_predictor,
)

CSR, TILES = USUAL["cpu"], Way("frdc", "if_else", "eager")


def statistics(edges, **others):
    return {**dict.fromkeys(STATISTICS, 10.0), "edges": edges, **others}


def forward(graph, edges, words=10.0):
    """Tiles are faster on graphs of more than a thousand edges."""
    ratio = (edges / 1000.0) ** -0.5
    found = statistics(edges, aggregated_words=words)
    return Forward(graph, found, {CSR: 1e-3, TILES: 1e-3 * ratio})


FORWARDS = [forward(f"graph {n}", 10.0 * 4**n, words) for n in range(8) for words in (1.0, 10.0)]


def test_a_rule_is_found_and_holds_on_graphs_left_out():
    predictor = train(FORWARDS, CSR, ridge=0.1)
    assert predictor.best(statistics(100_000.0), [CSR, TILES]) == TILES
    assert predictor.best(statistics(20.0), [CSR, TILES]) == CSR
    ratio = predictor.ratios(statistics(1000.0))[TILES]
    assert ratio == pytest.approx(1.0, rel=0.2)
    _, regret = best_ridge(FORWARDS, CSR)
    assert regret.mean < 1.05
    assert regret.worst < 1.3


def test_regret_counts_every_graph_alike():
    regret = Regret.of([("one", 1.0), ("one", 1.0), ("one", 1.0), ("two", 2.0)])
    assert regret == Regret(1.5, 2.0, {"one": 1.0, "two": 2.0})


def test_choices_are_measured_by_the_best_way():
    never = Predictor(CSR, {}, (0.0,) * (1 + len(STATISTICS)), (1e9,) * (1 + len(STATISTICS)))
    slow = Forward("graph", statistics(10.0), {CSR: 3.0, TILES: 2.0})
    assert choices(never, [slow]) == [("graph", 1.5)]


def test_inputs_beyond_those_seen_count_as_the_last_seen():
    predictor = train(FORWARDS, CSR, ridge=0.1)
    largest = max(one.statistics["edges"] for one in FORWARDS)
    far, near = (predictor.ratios(statistics(edges)) for edges in (1e30, largest))
    assert far == near
    assert all(math.isfinite(ratio) for ratio in far.values())


def test_descriptions_read_back():
    predictor = train(FORWARDS, CSR, ridge=1.0)
    assert Predictor.from_description(json.loads(json.dumps(predictor.description()))) == predictor


def test_too_few_graphs_are_refused():
    with pytest.raises(ValueError, match="two graphs at least"):
        held_out(FORWARDS[:2], CSR, 1.0)
    with pytest.raises(ValueError, match="no forward was recorded"):
        train(FORWARDS, Way("blocked", None, "eager"), 1.0)


def recorded(forwards):
    """As a recording's graphs, one letter choice for each forward of a graph."""
    graphs = {}
    for number, one in enumerate(forwards):
        content = graphs.setdefault(one.graph, {"name": one.graph, "plans": []})
        content["plans"] += [
            {
                "plan": {
                    "letters": {"conv": f"letters {number}"},
                    "order": {},
                    "features": "floats",
                    "layout": way.layout,
                    "method": way.method,
                    "executor": way.executor,
                },
                "statistics": one.statistics,
                "timing": {"median": seconds},
            }
            for way, seconds in one.seconds.items()
        ]
    return graphs


def test_forwards_are_plans_that_differ_in_how_they_run():
    assert forwards_of(recorded(FORWARDS)) == FORWARDS


def test_the_file_keeps_what_other_devices_learned(tmp_path):
    path = tmp_path / "predictor.json"
    write_predictor(path, {"cpu": recorded(FORWARDS)})
    cuda = [Forward(one.graph, one.statistics, {USUAL["cuda"]: 1.0, CSR: 2.0}) for one in FORWARDS]
    write_predictor(path, {"cuda": recorded(cuda)})
    devices = json.loads(path.read_text())["devices"]
    assert devices.keys() == {"cpu", "cuda"}
    assert Predictor.from_description(devices["cpu"]).usual == CSR


def test_command(tmp_path, capsys):
    output = tmp_path / "predictor.json"
    arguments = ["--results", str(tmp_path), "--output", str(output)]
    assert train_predictor_main(arguments) == 1
    document = {"benchmark": BENCHMARK, "format": FORMAT, "graphs": recorded(FORWARDS)}
    (tmp_path / "tune_cpu.json").write_text(json.dumps(document))
    assert train_predictor_main(arguments) == 0
    assert "times the best latency" in capsys.readouterr().out
    assert "cpu" in json.loads(output.read_text())["devices"]
