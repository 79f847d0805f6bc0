"""A loading script: statistics, a timed frozen forward, and a name that says what is made up."""

from bench import show


def test_a_synthetic_reddit_is_named_so(capsys):
    assert show.reddit_main(["--synthetic", "0.002", "--threads", "1"]) == 0
    printed = capsys.readouterr().out
    assert "graph               synthetic reddit x 0.002 (466 nodes" in printed
    assert "features            602" in printed
    assert "random weights" in printed
    assert "choose the same class on 100.00% of the nodes" in printed
