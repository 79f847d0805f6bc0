"""Raw recordings: malformed ones are refused in a sentence, and none reads outside of tensors."""

import random

import pytest
import torch

from bitgnn._library import library_info

OPS = torch.ops.bitgnn
NONE, INTEGER, REAL, INTEGERS, CONSTANT, REGISTER = range(6)
X = torch.arange(12, dtype=torch.int32).view(6, 2)
W = torch.arange(8, dtype=torch.int32).view(4, 2)
REST = [NONE] * 5
PRODUCT = [8, REGISTER, 0, CONSTANT, 0, INTEGER, 64, *REST, 1, 1]
pytestmark = pytest.mark.skipif(
    library_info().cpu_library is None, reason="only compiled operators have recordings"
)


def test_a_product():
    number = OPS.bind_recording([W], "bmm_bbb", [1, 2, 1, *PRODUCT])
    for x in (X, X + 1, X[:3]):
        assert OPS.run_recording(x, None, number).equal(OPS.bmm_bbb(x, W, 64))
    OPS.drop_recording(X, number)
    OPS.drop_recording(X, number)
    with pytest.raises(RuntimeError, match=rf"^run_recording: number must be .* got {number}"):
        OPS.run_recording(X, None, number)


def test_views():
    code = [1, 4, 3]
    code += [2, REGISTER, 0, INTEGERS, 2, 3, 4, 1, 1]
    code += [5, REGISTER, 1, INTEGER, 1, INTEGER, 1, INTEGER, 2**63 - 1, INTEGER, 1, 1, 2]
    code += [2, REGISTER, 2, INTEGER, 0, 1, 3]
    number = OPS.bind_recording([W], "aten::view aten::slice aten::unsqueeze", code)
    assert OPS.run_recording(X, None, number).equal(X.view(3, 4)[:, 1:].unsqueeze(0))
    with pytest.raises(RuntimeError):
        OPS.run_recording(X[:5], None, number)


def test_operators_check_as_ever():
    number = OPS.bind_recording([W], "bmm_bbb", [1, 2, 1, *PRODUCT])
    with pytest.raises(RuntimeError, match=r"^bmm_bbb: x must hold 2 words a row for 64 features"):
        OPS.run_recording(X[:, :1], None, number)
    with pytest.raises(RuntimeError, match=r"^bmm_bbb: x must be Int, got Float"):
        OPS.run_recording(X.float(), None, number)


def test_a_missing_input():
    product = [8, REGISTER, 0, CONSTANT, 0, INTEGER, 64, REGISTER, 1, *[NONE] * 4, 1, 2]
    number = OPS.bind_recording([W], "bmm_bbb", [2, 3, 2, *product])
    with pytest.raises(RuntimeError, match=f"^run_recording: second must be .* {number}"):
        OPS.run_recording(X, None, number)


@pytest.mark.parametrize(
    ("names", "code", "message"),
    [
        ("bmm_bbb", [], "too few numbers"),
        ("bmm_bbb", [1, 2, 1, *PRODUCT[:-1]], "too few numbers"),
        ("bmm_bbb", [1, 2, 1, *PRODUCT, 0], "numbers behind the last call"),
        ("", [1, 2, 1], "a result that no call writes"),
        ("bmm_xyz", [1, 2, 1, *PRODUCT], "no operator bmm_xyz"),
        ("bmm_bbf", [1, 2, 1, *PRODUCT], "other arguments than those of bmm_bbf"),
        ("pack_scaled", [1, 2, 1, 3, REGISTER, 0, NONE, NONE, 1, 1], "other outputs than those"),
        ("bmm_bbb", [3, 2, 1, *PRODUCT], "an impossible number of inputs"),
        ("bmm_bbb", [-1, 2, 1, *PRODUCT], "an impossible number of inputs"),
        ("bmm_bbb", [2, 1, 0, *PRODUCT], "fewer registers than inputs"),
        ("bmm_bbb", [1, 2**40, 1, *PRODUCT], "an impossible number of registers"),
        ("bmm_bbb", [1, 2, 2, *PRODUCT], "an impossible register of the result"),
        ("bmm_bbb", [1, 2, 1, 2**62, *PRODUCT[1:]], "an impossible number of arguments"),
        ("bmm_bbb", [1, 2, 1, 8, 6, *PRODUCT[2:]], "an impossible kind of argument"),
        ("bmm_bbb", [1, 2, 1, 8, REGISTER, 7, *PRODUCT[3:]], "an impossible register"),
        ("bmm_bbb", [1, 2, 1, 8, REGISTER, 1, *PRODUCT[3:]], "a register read before it is"),
        ("bmm_bbb", [1, 2, 1, 8, CONSTANT, 1, *PRODUCT[3:]], "an impossible constant"),
        ("bmm_bbb", [1, 2, 1, *PRODUCT[:-1], 0], "a register written twice"),
        ("aten::view", [1, 2, 1, 2, REGISTER, 0, INTEGERS, 99, 1, 1], "an impossible length"),
    ],
)
def test_a_malformed_recording(names, code, message):
    with pytest.raises(RuntimeError, match=f"^bind_recording: code must describe .* got {message}"):
        OPS.bind_recording([W], names, code)


def test_any_numbers():
    """Changed at random, a recording is refused, or its calls are or work."""
    draw = random.Random(0)
    whole = [1, 3, 2, *PRODUCT, 8, REGISTER, 1, CONSTANT, 1, INTEGER, 4, *REST, 1, 2]
    constants = [W, torch.zeros(4, 1, dtype=torch.int32)]
    bound = 0
    for _ in range(20_000):
        code = list(whole)
        for _ in range(draw.randint(1, 3)):
            value = draw.choice([0, 1, 2, 3, 4, 5, 6, 64, -1, 2**31, 2**63 - 1, -(2**63)])
            place = draw.randrange(len(code))
            if draw.random() < 0.2:
                code.insert(place, value)
            else:
                code[place] = value
        number, error = outcome(OPS.bind_recording, constants, "bmm_bbb bmm_bbb", code)
        assert error.startswith("bind_recording: code must describe" if number is None else "")
        if number is None:
            continue
        bound += 1
        for second in (None, X):
            _, error = outcome(OPS.run_recording, X, second, number)
            assert error.startswith(("run_recording: ", "bmm_bbb: ")) or not error
        OPS.drop_recording(X, number)
    assert bound > 100


def outcome(operator, *arguments):
    """What it gives and what it says of an error."""
    try:
        return operator(*arguments), ""
    except RuntimeError as error:
        return None, str(error)
