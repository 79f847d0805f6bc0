"""Turns values into steps: bits if readers take only signs, else floats or integers."""

from __future__ import annotations

from bitgnn.convert.network.demands import (
    signs_beside,
)
from bitgnn.convert.network.graph_products import GraphProducts
from bitgnn.convert.network.image_products import ImageProducts
from bitgnn.convert.network.registers import (
    ALSO_FLOATS,
    BY_LETTERS,
    FIRST_LAYER,
    Bits,
    Registers,
    comparison,
    width_of,
)
from bitgnn.convert.network.tracer import NotTraced
from bitgnn.convert.network.values import (
    IMAGES,
    PRODUCTS,
    ROWS,
    SUMS,
    Network,
    Value,
    collapse,
    is_unit,
)
from bitgnn.inference.frozen import FreezeReport
from bitgnn.inference.frozen_hetero import FrozenHetero
from bitgnn.inference.frozen_model import FrozenModel
from bitgnn.inference.image_calls import Takes


def select_steps(network: Network) -> FrozenModel:
    """The frozen model of a network.

    Raises:
        ValueError: the width of the features cannot be told, or something does not fit; the message
            names the layer.
    """
    selection = (_ImageSelection if network.of_images else _GraphSelection)(network)
    demands = selection.demands
    for value in demands.values:
        if demands.is_needed(value) or value in demands.scaled:
            selection.emit(value)
    return selection.model()


def _reads_input(value: Value) -> bool:
    """True if a value is the input, flattened or not."""
    return all(p.kind == "input" or (p.kind == "flatten" and _reads_input(p)) for p in value.inputs)


class _Selection(Registers):
    """Emits values; what products and packing write, networks of each family say themselves."""

    def emit(self, value: Value) -> None:
        """Write a value in every form that its readers need."""
        targets = self.demands.signs.get(value, [])
        if self._has_bits(value, targets):
            return
        if value in self.demands.scaled:
            self._pack_scaled(value)
        for target in targets:
            if target not in self.bits:
                if value in self.hidden:
                    self.reasons.setdefault(target.layer, self._why_packed(value))
                self._pack_signs(value, target)

    def _has_bits(self, value: Value, targets: list[Value]) -> bool:
        """Write a value itself; True if its operator has written the bits of its target."""
        if self.demands.writes_bits(value):
            self._write_bits(value, targets[0])
            return True
        if value.kind != "input":
            packs = value.kind != "function" and any(t not in self.bits for t in targets)
            if value in self.demands.floats or packs:
                self.floats[value] = self._float_base(value)
        return False

    def _why_packed(self, base: Value) -> str:
        if base.kind in ("conv", "linear") and _reads_input(base):
            return FIRST_LAYER
        if base.kind not in self.demands.bit_writers:
            return f"a sign is taken of floats that {base.name or base.kind} computes"
        return ALSO_FLOATS

    def _pack_signs(self, base: Value, target: Value) -> None:
        """Pack the signs of a target whose base exists in floats."""
        raise NotImplementedError

    def _float_base(self, value: Value) -> int:
        """Emit a value in floats."""
        if value.kind == "linear" and value.layer in self.network.letters:
            self.reasons.setdefault(value.layer, f"{BY_LETTERS} a float product")
        return self._float_step(value)

    def _write_bits(self, value: Value, target: Value) -> None:
        """Emit a value as the bits of the one target behind it."""
        raise NotImplementedError


class _GraphSelection(_Selection, GraphProducts):
    """Networks of graphs or matrices."""

    def model(self) -> FrozenModel:
        """A model of graphs or matrices."""
        network = self.network
        for features in network.inputs:
            readers = [value for value in self.demands.values if features in value.inputs]
            if features.size is None and not all(value.kind == "call" for value in readers):
                raise NotTraced("freeze: no layer tells the number of features")
        for name, value in network.outputs.items():
            base, _ = collapse(value)
            in_bits = bool(self.demands.signs.get(base)) and base not in self.floats
            self.boundaries[name] = "bits" if in_bits else "floats"
        report = FreezeReport(
            network.letters, self.boundaries, self.reasons, network.folded, network.orders
        )
        widths = [features.size or 0 for features in network.inputs]
        program, tensors, calls = self.parts(widths, self.floats[self.scores])
        specs, own_call = self.specs, network.own_call
        if network.types is not None:
            return FrozenHetero(program, tensors, specs, report, calls, types=network.types)
        return FrozenModel(program, tensors, specs, report, calls, own_call=own_call)

    def _why_packed(self, base: Value) -> str:
        several = len(self.demands.signs[base]) > 1 and base.kind in self.demands.bit_writers
        return (
            "its signs are needed behind different functions"
            if several
            else super()._why_packed(base)
        )

    def _pack_signs(self, base: Value, target: Value) -> None:
        if target is base and self.demands.packs_standardized(base):
            self._pack_standardized(base)
            return
        size = width_of(base)
        threshold, flipped = comparison(target, self.device, of_sums=False)
        read, sizes = [self.floats[base]], {"size": size}
        register = self.step("pack", target.layer, read, sizes, threshold=threshold)
        self.bits[target] = Bits(register, size, flipped)

    def _float_base(self, value: Value) -> int:
        kind = value.kind
        if value.is_function("sign"):
            bits = self._plain(value)
            return self.step("unpack", value.layer, [bits.register], {"size": bits.size})
        if kind in PRODUCTS:
            return self._product(value, None)
        if kind == "int8_product":
            return self._int8_product(value, None).register
        if kind in SUMS:
            return self._aggregate(value, None)
        if kind == "attend":
            return self._attend(value, None)
        if kind == "add" and all(map(is_unit, value.inputs)):
            return self._sum(value, None)
        return super()._float_base(value)

    def _write_bits(self, value: Value, target: Value) -> None:
        if value.kind == "cat":
            self.bits[target] = self._joined(value)
            return
        if value.kind == "int8_product":
            self.bits[target] = self._int8_product(value, target)
            return
        assert value.size is not None
        if value.kind in PRODUCTS:
            self.bits[target] = Bits(self._product(value, target), value.size)
        elif (beside := signs_beside(value)) is not None:
            self.bits[target] = self._beside_signs(value, target, *beside)
        else:
            compared = self._comparison(target)
            others = {"add": self._sum, "attend": self._attend}
            emit = others.get(value.kind, self._aggregate)
            self.bits[target] = Bits(emit(value, compared), value.size, compared[1])


class _ImageSelection(_Selection, ImageProducts):
    """Networks of images or rows."""

    def model(self) -> FrozenModel:
        """A model of images or rows."""
        letters = {
            name: letters[:2] + ("B" if self.boundaries.get(name) == "bits" else "F")
            for name, letters in self.network.letters.items()
        }
        report = FreezeReport(letters, self.boundaries, self.reasons, self.network.folded)
        values, features = self.demands.values, self.features
        size, rank = features.size, features.rank
        if rank is None:  # the user's own code alone reads it
            has_images = any(v.kind == "product" and v.rank == IMAGES for v in values)
            rank = IMAGES if has_images else ROWS
        takes: Takes = "images" if rank == IMAGES else "rows"
        if size is None and takes == "images":
            rows = (v.size for v in values if v.kind == "flatten" and features in v.inputs)
            size, takes = next(rows, None), "flattened"
        # What only the user's own code reads has channels that nothing tells.
        program, tensors, calls = self.parts([size or 0], self.floats[self.scores])
        return FrozenModel(program, tensors, (), report, calls, takes=takes)

    def _has_bits(self, value: Value, targets: list[Value]) -> bool:
        has_sums = self.demands.writes_sums(value)
        if not has_sums and value not in self.demands.residuals:
            return super()._has_bits(value, targets)
        self._integers(value, targets, has_sums)
        if value in self.demands.floats or len(targets) > 1:
            self.floats[value] = self.step("sums_to_floats", value.layer, [self.sums[value]])
        return False

    def _why_packed(self, base: Value) -> str:
        if base.kind == "add":
            return self.demands.why_no_integers(base)
        return super()._why_packed(base)

    def _pack_signs(self, base: Value, target: Value) -> None:
        width_of(base)
        self._pack_images(base, target, comparison(target, self.device, of_sums=False))

    def _float_base(self, value: Value) -> int:
        if value.is_function("sign"):
            return self._unpacked_images(value)
        if value.kind == "product":
            self.boundaries[value.layer] = "floats"
            return self._image_product(value, None)
        return super()._float_base(value)

    def _write_bits(self, value: Value, target: Value) -> None:
        self.boundaries[value.layer] = "bits"
        self._pooled(self._image_product(value, target), target)
