"""The predictor finds rules that hold on graphs it has not seen, and says how far it is off."""

import json

import pytest

from bench.tuner.predictor import (
    Forward,
    Regret,
    choices,
    forwards_of,
    held_out,
    train,
    write_predictor,
)
from bench.tuner.recording import BENCHMARK, FORMAT
from bitgnn.inference.predictor import OWN, SHARED, Predictor, Way
from train_predictor import main as train_predictor_main

CSR, TILES = Way("csr", None, "eager"), Way("frdc", "if_else", "eager")


def statistics(words, steps=3.0):
    found = {**dict.fromkeys((*SHARED, *OWN, "sliced_words"), 0.0), "constant": 1.0, "steps": steps}
    return {**found, "nodes": 100.0, "bytes": 5000.0, "aggregated_words": words}


def forward(graph, words, steps=3.0):
    """Tiles cost less a word and more to begin with: they are faster beyond 2000 words."""
    found = statistics(words, steps)
    common = 1e-9 * found["bytes"] + 1e-6 * steps
    csr, tiles = common + 3e-8 * words, common + 4e-5 + 1e-8 * words
    return Forward(graph, found, {CSR: csr, TILES: tiles})


FORWARDS = [forward(f"graph {n}", 10.0 * 4**n, steps) for n in range(8) for steps in (2.0, 3.0)]


def test_a_rule_is_found_and_holds_on_graphs_left_out():
    predictor = train(FORWARDS)
    assert predictor.order(statistics(3000.0), [CSR, TILES]) == [TILES, CSR]
    assert predictor.order(statistics(1000.0), [CSR, TILES]) == [CSR, TILES]
    for one in FORWARDS:
        for way, seconds in one.seconds.items():
            assert predictor.seconds(one.statistics, way) == pytest.approx(seconds, rel=1e-3)
    regret = held_out(FORWARDS)
    assert regret.mean < 1.01
    assert regret.worst < 1.05


def test_no_weight_is_below_zero():
    noisy = [Forward("graph", statistics(w), {CSR: 1.0 / w, TILES: 1.0}) for w in (1.0, 2.0, 5.0)]
    predictor = train(noisy)
    assert min(*predictor.shared, *(w for own in predictor.own.values() for w in own)) >= 0.0


def test_regret_counts_every_graph_alike():
    regret = Regret.of([("one", 1.0), ("one", 1.0), ("one", 1.0), ("two", 2.0)])
    assert regret == Regret(1.5, 2.0, {"one": 1.0, "two": 2.0})


def test_choices_are_measured_by_the_best_way():
    knows_one = Predictor((0.0,) * len(SHARED), {CSR: (1.0,) * len(OWN)})
    slow = Forward("graph", statistics(10.0), {CSR: 3.0, TILES: 2.0})
    assert choices(knows_one, [slow]) == [("graph", 1.5)]


def test_descriptions_read_back():
    predictor = train(FORWARDS)
    assert Predictor.from_description(json.loads(json.dumps(predictor.description()))) == predictor


def test_too_few_graphs_are_refused():
    with pytest.raises(ValueError, match="two graphs at least"):
        held_out(FORWARDS[:2])
    with pytest.raises(ValueError, match="no forwards"):
        train([])


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


def test_a_graph_is_left_out_with_every_model():
    graphs = recorded(FORWARDS)
    graphs["graph 0/GraphSAGE"] = {**graphs["graph 0"], "name": "graph 0, GraphSAGE"}
    found = forwards_of(graphs)
    assert sum(forward.graph == "graph 0" for forward in found) == 4
    assert held_out(found).by_graph.keys() == {f"graph {n}" for n in range(8)}
    both = {"graph 0/GCN": graphs["graph 0"], "graph 0/GraphSAGE": graphs["graph 0"]}
    with pytest.raises(ValueError, match="two graphs at least"):
        held_out(forwards_of(both))


def test_the_file_keeps_what_other_devices_learned(tmp_path):
    path = tmp_path / "predictor.json"
    write_predictor(path, {"cpu": recorded(FORWARDS)})
    cuda = [Forward(one.graph, one.statistics, {TILES: 1.0, CSR: 2.0}) for one in FORWARDS]
    write_predictor(path, {"cuda": recorded(cuda)})
    devices = json.loads(path.read_text())["devices"]
    assert devices.keys() == {"cpu", "cuda"}
    assert Predictor.from_description(devices["cpu"]) == train(FORWARDS)


def test_command(tmp_path, capsys):
    output = tmp_path / "predictor.json"
    arguments = ["train", "--results", str(tmp_path), "--output", str(output)]
    assert train_predictor_main(arguments) == 1
    document = {"benchmark": BENCHMARK, "format": FORMAT, "graphs": recorded(FORWARDS)}
    (tmp_path / "tune_cpu.json").write_text(json.dumps(document))
    assert train_predictor_main(arguments) == 0
    assert "times the best latency" in capsys.readouterr().out
    assert "cpu" in json.loads(output.read_text())["devices"]
