"""Arguments of benchmarks."""

import pytest
import torch

from bench_ops import main as operators_main

NO_DEVICE = pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is there")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--repeats", "3"), "--repeats must be at least 7, got 3"),
        (("--threads", "0"), "--threads: must be at least 1, got 0"),
        (("--nonsense",), "unrecognized arguments: --nonsense"),
        pytest.param(("--device", "cuda"), "torch sees no CUDA device", marks=NO_DEVICE),
    ],
)
def test_bad_arguments(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        operators_main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
