"""What a configuration says about one form: its precision, its training, its batches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from bitgnn.nn.precision import NORM_OPTIONS, PRODUCT_OPTIONS, Norm
from bitgnn.quantize.linear import WeightGradient
from bitgnn.quantize.sign import Surrogate

LAYER_OPTIONS = (*NORM_OPTIONS, *PRODUCT_OPTIONS)


class Strict(BaseModel):
    """A section whose unknown keys are mistakes.

    Attributes:
        sections: sections inside it by key, for messages.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    sections: ClassVar[Mapping[str, type[BaseModel]]] = {}


class FullGraph(Strict):
    """Every step sees the whole graph.

    Attributes:
        kind: ``full``.
    """

    kind: Literal["full"] = "full"


class Neighbors(Strict):
    """``bitgnn.data.NeighborLoader``: steps see sampled neighbourhoods of training nodes.

    Attributes:
        kind: ``neighbor``.
        neighbors: sampled for each node, one number a layer, nearest layer first.
        batch_size: training nodes of a step.
    """

    kind: Literal["neighbor"]
    neighbors: tuple[Annotated[int, Field(gt=0)], ...] = (25, 10)
    batch_size: int = Field(512, gt=0)


class RandomWalks(Strict):
    """PyG's ``GraphSAINTRandomWalkSampler``: steps see subgraphs that random walks visit.

    Attributes:
        kind: ``saint_rw``.
        roots: where walks start.
        walk_length: steps of a walk.
        steps: subgraphs an epoch.
    """

    kind: Literal["saint_rw"]
    roots: int = Field(gt=0)
    walk_length: int = Field(gt=0)
    steps: int = Field(gt=0)


Loader = Annotated[FullGraph | Neighbors | RandomWalks, Field(discriminator="kind")]


class TeacherPropagation(Strict):
    """Smoothing of the teachers' probabilities over the graph, as APPNP does.

    ``P <- (1 - alpha) A P + alpha P0``, ``steps`` times, with the normalised adjacency A of a GCN
    (Gasteiger et al., "Predict then Propagate", 2019).

    Attributes:
        steps: number of repeats.
        alpha: share of the teachers' own probabilities kept in each.
    """

    steps: int = Field(10, gt=0)
    alpha: float = Field(0.1, ge=0, le=1)


class Schedule(Strict):
    """The learning rate as a function of the epoch, so that going on needs no scheduler's state.

    Attributes:
        epochs: passes over the training data.
        learning_rate: the highest one.
        schedule: learning rate over the epochs: constant, or a cosine falling to 0.
        warmup: epochs in which the learning rate rises from 0 first.
    """

    epochs: int = Field(gt=0)
    learning_rate: float = Field(gt=0)
    schedule: Literal["constant", "cosine"] = "constant"
    warmup: int = Field(0, ge=0)

    def rate(self, epoch: float) -> float:
        """Learning rate of an epoch.

        With ``warmup`` w it first rises as ``(epoch + 1) / w``; over the other epochs n it is
        constant or ``(1 + cos(pi k / n)) / 2`` of ``learning_rate`` at the k-th of them, from 0.

        Args:
            epoch: from 0; parts of one are where time, not epochs, ends the training.
        """
        if epoch < self.warmup:
            return self.learning_rate * (epoch + 1) / self.warmup
        if self.schedule == "constant":
            return self.learning_rate
        progress = (epoch - self.warmup) / max(self.epochs - self.warmup, 1)
        return self.learning_rate * (1 + math.cos(math.pi * progress)) / 2


class Recipe(Schedule):
    """How one form is trained: by Adam, with :class:`Schedule`'s attributes and these.

    Attributes:
        precision: what is binary: a preset or letters ``"xyz+xyz"``, for all layers or one a
            layer; None is the preset that the form is named after.
        hidden_norm: batch norm between the dense product and its sign.
        output_norm: batch norm in front of the sign between two layers.
        surrogate: slope of the sign: clipped straight-through or ApproxSign.
        weight_gradient: Bi-GCN's rule, or its first term alone.
        hardtanh: clip activations to [-1, 1] in front of a sign.
        weight_decay: of Adam, on all parameters.
        dropout: in front of each layer, after the sign in binary forms.
        input_norm: standardise raw features by a batch norm without parameters (``gcn`` only).
        normalize_features: divide each row of the raw features by its sum.
        thermometer: describe each feature by so many bits, see
            :func:`~bitgnn.train.build.thermometer`; None takes it as it is.
        choose_by: the epoch kept has the lowest validation loss or the highest validation score.
        patience: stop after so many epochs without a better one; None trains all epochs.
        label_smoothing: share of the label spread over all classes in the training loss.
        start_from: form whose trained model of the same seed gives the initial weights.
        distill: weight of the divergence from the teachers' class probabilities on all nodes.
        teachers: forms whose class probabilities of the same seed are averaged; empty is
            ``start_from`` alone.
        temperature: logits are divided by it in that divergence.
        teacher_propagation: smooth the teachers' probabilities over the graph first.
    """

    precision: str | tuple[str, ...] | None = None
    hidden_norm: Norm | None = None
    output_norm: Norm | None = None
    surrogate: Surrogate = "ste"
    weight_gradient: WeightGradient = "bigcn"
    hardtanh: bool = False
    weight_decay: float = Field(0.0, ge=0)
    dropout: float = Field(0.0, ge=0, lt=1)
    input_norm: bool = True
    normalize_features: bool = False
    thermometer: int | None = Field(None, gt=0)
    choose_by: Literal["loss", "score"] = "loss"
    patience: int | None = Field(None, gt=0)
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    start_from: str | None = None
    distill: float = Field(0.0, ge=0)
    teachers: tuple[str, ...] = ()
    temperature: float = Field(1.0, gt=0)
    teacher_propagation: TeacherPropagation | None = None

    def needs(self) -> tuple[str, ...]:
        """Forms that must be trained before, each once."""
        start = () if self.start_from is None else (self.start_from,)
        return tuple(dict.fromkeys((*start, *self.teachers)))

    def teaching(self) -> tuple[str, ...]:
        """Forms to distill from."""
        if self.distill == 0:
            return ()
        return self.teachers or self.needs()


def layer_options(recipe: Recipe) -> dict[str, Any]:
    """Options of the layers that differ from their defaults, as the models' keywords."""
    defaults = Recipe.model_fields
    return {
        name: value
        for name in LAYER_OPTIONS
        if (value := getattr(recipe, name)) != defaults[name].default
    }
