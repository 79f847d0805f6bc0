"""Tables of trainings on text: scores, the paper's order, speeds."""

import pytest

from bench.tables.text import decoder_speed_table, decoder_table, text_table


def run(score, layers=(), seed=0):
    return {"test_score": score, "layers": list(layers), "seed": seed}


def entry(mean, std, runs, epochs=4):
    return {
        "test_mean": mean, "test_std": std, "validation_mean": mean, "validation_loss_mean": 0.4567,
        "epochs_median": epochs, "runs": runs,
    }  # fmt: skip


def pair(first, second):
    return [run(first), run(second, seed=1)]


def encoder_record(level=82.0):
    recipes = {
        "fp32": {"precision": "fp32"},
        "binary": {"precision": "binary", "levels": [1]},
        "bwta_bit": {"precision": "bwta", "levels": [4, 2, 1], "alignment": "mean"},
        "bwta_level": {"precision": "bwta", "levels": [4, 3, 2, 1], "alignment": "projection"},
    }
    return {
        "metric": "accuracy",
        "score_factor": 100.0,
        "environment": {
            "gpu": "A GPU", "cpu": "A CPU", "versions": {"torch": "2.11"}, "commit": "0123456789ab",
            "dirty": False, "date": "2026-01-02T03:04",
        },
        "config": {"title": "Task", "forms": recipes},
        "forms": {
            "fp32": entry(85.0, 0.1, pair(0.849, 0.851)),
            "binary": entry(78.0, 0.5, pair(0.775, 0.785)),
            "bwta_bit": entry(81.0, 0.2, pair(0.808, 0.812)),
            "bwta_level": entry(level, 1.5, pair(0.81, 0.83)),
        },
    }  # fmt: skip


def test_scores_and_the_order_of_the_paper():
    text = text_table([encoder_record()])
    assert "Trained on A GPU, torch 2.11, commit 0123456789, 2026-01-02." in text
    assert "| Task: fp32 | 2 | floats | 85.0 ± 0.1 | 84.9, 85.1 | 0.457 | 4 |" in text
    assert "| Task: bwta_bit | 2 | 4, 2, 1 (mean) | 81.0 ± 0.2 |" in text
    assert "- Task: bwta_bit above binary holds: +3.0 points; for 2 of 2 seeds\n" in text
    assert (
        "- Task: bwta_level above bwta_bit holds: +1.0 points, within one standard deviation; "
        "for 2 of 2 seeds\n" in text
    )


def test_methods_compared_by_perplexity_stand_below_and_lower_is_better():
    record = encoder_record()
    forms = {
        "fp32": entry(3.9, 0.01, pair(3.8, 4.0)),
        "binary": entry(4.8, 0.01, pair(4.7, 4.9)),
        "bwta_bit": entry(4.7, 0.01, pair(4.8, 4.6)),
    }
    other = {
        **record, "metric": "perplexity", "score_factor": 1.0, "forms": forms,
        "config": {**record["config"], "title": "letters"},
        "environment": {**record["environment"], "commit": None},
    }  # fmt: skip
    text = text_table([record, other])
    assert text.index("| Task: bwta_level") < text.index("| letters: fp32")
    assert "| letters: binary | 2 | signs | 4.800 ± 0.010 | 4.700, 4.900 |" in text
    line = "- letters: bwta_bit above binary holds: -0.100 in perplexity; for 1 of 2 seeds\n"
    assert line in text
    assert text.startswith("Task: Trained on A GPU, torch 2.11, commit 0123456789, 2026-01-02. ")
    assert "letters: Trained on A GPU, torch 2.11, commit unknown" in text
    assert decoder_table([record, other]) == "Not measured yet.\n"


def decoder_record():
    record = encoder_record()
    return {
        **record,
        "metric": "perplexity",
        "config": {"title": "decoder", "network": {"layers": 4, "width": 256}},
        "forms": {
            "fp32": entry(3.0, 0.0, [run(3.0)]),
            "share_30": entry(3.5, 0.0, [run(3.5, ["a", "b"])]),
        },
        "frozen": {"share_30": {"equal": 9, "answers": 10}},
    }


def test_perplexities_and_speeds():
    text = decoder_table([encoder_record(), decoder_record()])
    assert "| fp32 | 0 | 3.000 | 3.000 | 4 |  |" in text
    assert "| share_30 | 2 | 3.500 | 3.500 | 4 | 9 of 10 |" in text


def test_speeds_stand_beside_those_of_floats_of_the_same_batch():
    speeds = [
        {
            "form": form, "layers": 3, "network": {"layers": 4, "width": 256}, "batch": 1,
            "prompt": 100, "prefill_seconds": prefill,
            "decode_seconds": decode, "bytes": 2048, "captured": True,
        }
        for form, prefill, decode in (("fp32", 1e-3, 1e-4), ("share_30", 2e-3, 5e-5))
    ]  # fmt: skip
    environment = {
        **encoder_record()["environment"], "cuda": "13.0",
        "versions": {"torch": "2.11", "torch-geometric": "2.8"},
    }  # fmt: skip
    record = {
        "benchmark": "decoders_cuda", "environment": environment, "settings": {"repeats": 15},
        "results": speeds,
    }  # fmt: skip
    text = decoder_speed_table(record)
    assert "A GPU, CUDA 13.0, torch 2.11" in text
    assert "4 layers of 256 features:" in text
    row = "| share_30, batch 1 | 3 | 2.00 ms (50,000/s) | 0.50× | 50.0 µs (20,000/s) | 2.00× |"
    assert row in text


@pytest.mark.parametrize("table", [text_table, decoder_table])
def test_without_its_kind_of_record_nothing_was_measured(table):
    other = decoder_record() if table is text_table else encoder_record()
    assert table([other]) == "Not measured yet.\n"
