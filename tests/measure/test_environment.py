"""The machine record: JSON-ready, free of paths, with what a reader needs to judge numbers."""

import json
import os

import torch

from bitgnn.measure.environment import environment, usable_cores


def test_record_is_json_and_names_versions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record = environment()
    text = json.dumps(record)
    assert record["versions"]["torch"] == torch.__version__
    assert record["threads"] == torch.get_num_threads()
    assert 1 <= record["cores"] == usable_cores() <= os.cpu_count()
    assert record["cpu"]
    assert str(tmp_path) not in text
    assert os.path.expanduser("~") not in text
