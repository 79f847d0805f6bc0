"""Frozen models as plain values beside their tensors, which a checkpoint's JSON holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from bitgnn.inference.bounds import check_program
from bitgnn.inference.bwta.architecture import build
from bitgnn.inference.bwta.architecture import describe as describe_transformer
from bitgnn.inference.emit import of_steps
from bitgnn.inference.frozen import FreezeReport, each_once, under_all_names
from bitgnn.inference.frozen_hetero import FrozenHetero, Types
from bitgnn.inference.frozen_model import FrozenModel
from bitgnn.inference.graph import GraphSpec
from bitgnn.inference.own_call import OwnCall
from bitgnn.inference.own_code.calls import CALLS, describe_call, read_calls
from bitgnn.inference.own_code.structure import parts_of, with_parts
from bitgnn.inference.program import Program

FORWARD = "source_to_target"


def describe(model: FrozenModel) -> dict[str, Any]:
    """Everything but the tensors and the user's code, as plain values."""
    report = {"report": model.report.description()}
    if not model.is_program:
        shared = each_once(model.model.state_dict())[1]
        if model.kind == "bwta":
            return {**describe_transformer(model.model), "shared": shared, **report}
        return {"layers": parts_of(model.model), "shared": shared, **report}
    own: dict[str, Any] = {"takes": model.takes}
    if model.kind == "program":
        own = {"graphs": [asdict(s) for s in model.graphs], "call": model.own_call.description()}
    if isinstance(model, FrozenHetero):
        own = {"graphs": [asdict(s) for s in model.graphs], "types": model.types.description()}
    calls = () if model.calls is None else model.calls
    return {
        "program": str(model.program),
        **report,
        "features": model.features,
        **own,
        "calls": [describe_call(call) for call in calls],  # type: ignore[arg-type]
    }


def read(
    description: Mapping[str, Any], tensors: Mapping[str, Tensor], model: nn.Module | None = None
) -> FrozenModel:
    """The inverse of :func:`describe` and of the tensors; whatever does not fit raises.

    ``model`` is one of the same architecture, trained or not, for code of the user's; it stays as
    it is.
    """
    report = FreezeReport.from_description(description["report"])
    if "program" not in description:
        state = under_all_names(tensors, description["shared"])
        if "architecture" in description:
            return FrozenModel.of_code("bwta", build(description, state, model), report)
        assert model is not None
        layers = {
            name: _completed(entry, model.get_submodule(name)) if "program" in entry else entry
            for name, entry in description["layers"].items()
        }
        made = with_parts(model, layers, state)
        try:
            made.load_state_dict(dict(state), assign=False)
        except RuntimeError as error:
            raise ValueError(str(error)) from error
        return FrozenModel.of_code("layers", made, report)
    calls = description["calls"]
    if not isinstance(calls, list):
        raise ValueError("calls must be a list")
    own = {name: tensor for name, tensor in tensors.items() if not name.startswith(CALLS)}
    held, told = read_calls(calls, tensors, model), description["program"]
    if isinstance(told, Mapping) and "steps" in told:  # of format 4 and before
        program, own = of_steps(told, own, [call.size for call in held])
    else:
        program = Program.read(told)
    graphs = description.get("graphs", [])
    if not isinstance(graphs, list):
        raise ValueError("graphs must be a list")
    options = {"takes": description["takes"]} if "takes" in description else {}
    if "call" in description:
        options["own_call"] = OwnCall.from_description(description["call"])
    specs = [GraphSpec.from_description(graph) for graph in graphs]
    given = (program, own, specs, report, held, description["features"])
    if "types" in description:
        frozen: FrozenModel = FrozenHetero(*given, Types.from_description(description["types"]))
    else:
        frozen = FrozenModel(*given, **options)
    check_program(frozen.program, own)
    return frozen


def _completed(entry: Any, layer: nn.Module) -> dict[str, Any]:
    """Plain values of a packed layer from those of its model alone, which early files hold."""
    follows = all(g["kind"] == "neighbours" and g["flow"] == FORWARD for g in entry["graphs"])
    found = {"takes_pairs": isinstance(layer, MessagePassing) and follows}
    found["reads_destinations"] = bool(getattr(layer, "root_weight", True))
    widths = {n: getattr(layer, n) for n in ("in_channels", "out_channels") if hasattr(layer, n)}
    return {"packed": {"frozen": entry, **found, **widths}}
