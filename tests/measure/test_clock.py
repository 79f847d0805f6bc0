"""The clock: calls in turns, and failures that leave the others alone."""

from bitgnn.measure.clock import Clock, Ready


def test_a_call_that_fails_in_a_round_leaves_the_others():
    calls = []

    def fragile():
        calls.append(None)
        if len(calls) > 3:
            raise RuntimeError("worn out")

    def ready(fn):
        return Ready(fn, fn, 1, 0.0, fn)

    found, failed = Clock("cpu").rounds({"a": ready(fragile), "b": ready(lambda: None)}, 7)
    assert list(found) == ["b"]
    assert len(found["b"].seconds) == 7
    assert str(failed["a"]) == "worn out"
    assert len(calls) == 4


def test_a_short_call_is_repeated():
    calls = []
    ready = Clock("cpu").prepare(lambda: calls.append(None))
    assert ready.calls > 10
    before = len(calls)
    ready.run()
    assert len(calls) == before + ready.calls
