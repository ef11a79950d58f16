"""Linear layouts: maps between hardware places and tensor indices that are linear over GF(2).

Worked example. ``mma.m16n8k16`` gives lane ``l`` in register ``i`` of its accumulator the element in row
``l div 4 + 8·(i div 2)`` and column ``2·(l mod 4) + i mod 2``. In bits nothing is added, bits only move:

    register bit 0 -> column 1      lane bit 0 -> column 2      lane bit 2 -> row 1      lane bit 4 -> row 4
    register bit 1 -> row 8         lane bit 1 -> column 4      lane bit 3 -> row 2

These seven images say all: the place of lane 5 = 4 + 1, register 2 is row 1 ^ 8, column 2. An XOR swizzle is no more
than an image with two bits set. Composition, inversion and division of such maps are linear algebra over the field
of two elements, exact and complete: what this module computes it also decides.

The notion, the names of its operations, and the reading of swizzles as layouts are those of Zhou et al., *Linear
Layouts: Robust Code Generation of Efficient Tensor Computation Using F2*, 2025 (arXiv:2505.23819).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracea.errors import InvalidSchedule

__all__ = ["LinearLayout"]

Coordinate = Any  # an int, or an integer array; a mapping of them goes in and comes out


@dataclass(frozen=True, slots=True)
class LinearLayout:
    """A linear map: ``inputs`` name the bits that go in with the image of each, ``outputs`` the bits that come out.

    An image is one integer, the outputs side by side, the first output lowest. Use :meth:`of` to write one down.
    """

    inputs: tuple[tuple[str, tuple[int, ...]], ...]
    outputs: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        for what, names in (("inputs", self.input_names), ("outputs", self.output_names)):
            if len(set(names)) != len(names):
                raise InvalidSchedule(
                    field=f"{what} of a linear layout", got=names, expected="each name once", remedy="rename one"
                )
        limit = 1 << self.output_bits
        for name, images in self.inputs:
            if any(not 0 <= image < limit for image in images):
                raise InvalidSchedule(
                    field=f"images of {name}", got=images, expected=f"below {limit}", remedy="widen the outputs"
                )

    @classmethod
    def of(cls, inputs: Mapping[str, Sequence[Sequence[int]]], outputs: Mapping[str, int]) -> LinearLayout:
        """Return the layout in which each bit of each input has an image with one integer per output.

        Args:
            inputs: for each input its bits' images, lowest bit first.
            outputs: for each output its number of bits.

        Raises:
            InvalidSchedule: an image has another number of coordinates, or one that its output does not hold.
        """
        sizes = tuple(outputs.items())
        packed: list[tuple[str, tuple[int, ...]]] = []
        for name, images in inputs.items():
            for image in images:
                if len(image) != len(sizes) or any(
                    not 0 <= part < 1 << bits for part, (_, bits) in zip(image, sizes, strict=True)
                ):
                    raise InvalidSchedule(
                        field=f"image of a bit of {name}",
                        got=tuple(image),
                        expected=f"one integer below 2^bits for each of {dict(sizes)}",
                        remedy="give one coordinate per output",
                    )
            packed.append((name, tuple(_pack(image, sizes) for image in images)))
        return cls(tuple(packed), sizes)

    @classmethod
    def identity(cls, source: str, target: str, bits: int) -> LinearLayout:
        """Return the map of ``bits`` bits that passes each on."""
        return cls(((source, tuple(1 << bit for bit in range(bits))),), ((target, bits),))

    @classmethod
    def zeros(cls, source: str, bits: int) -> LinearLayout:
        """Return the map of ``bits`` bits that ignores them: as a factor, a dimension that replicates."""
        return cls(((source, (0,) * bits),), ())

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of what goes in."""
        return tuple(name for name, _ in self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of what comes out."""
        return tuple(name for name, _ in self.outputs)

    @property
    def images(self) -> tuple[int, ...]:
        """The images of all input bits, the first input's first: the columns of the matrix."""
        return tuple(image for _, images in self.inputs for image in images)

    @property
    def input_bits(self) -> int:
        """Number of bits that go in."""
        return sum(len(images) for _, images in self.inputs)

    @property
    def output_bits(self) -> int:
        """Number of bits that come out."""
        return sum(bits for _, bits in self.outputs)

    def bits_of(self, name: str) -> int:
        """Return the number of bits of an input or an output of that name, the input's where both have it."""
        sizes = dict(self.outputs) | {source: len(images) for source, images in self.inputs}
        if name not in sizes:
            raise InvalidSchedule(
                field="dimension of a linear layout", got=name, expected=list(sizes), remedy="name one of these"
            )
        return sizes[name]

    def apply(self, **coordinates: Coordinate) -> dict[str, Any]:
        """Return the outputs at a point, or at many: coordinates are integers or integer arrays that broadcast.

        Raises:
            InvalidSchedule: an input is missing, or one is named that there is not.
        """
        if set(coordinates) != set(self.input_names):
            raise InvalidSchedule(
                field="coordinates of a linear layout",
                got=sorted(coordinates),
                expected=sorted(self.input_names),
                remedy="give every input and no other",
            )
        value: Any = 0
        for name, images in self.inputs:
            coordinate = coordinates[name]
            if np.any(np.asarray(coordinate) < 0) or np.any(np.asarray(coordinate) >> len(images)):
                raise InvalidSchedule(
                    field=name, got=coordinate, expected=f"0 .. {(1 << len(images)) - 1}", remedy="stay in range"
                )
            value = value ^ (coordinate & 0)  # an input without bits still broadcasts
            for bit, image in enumerate(images):
                value = value ^ ((coordinate >> bit & 1) * image)
        return dict(zip(self.output_names, _unpack(value, self.outputs), strict=True))

    def then(self, after: LinearLayout) -> LinearLayout:
        """Return the composition: this layout first, and ``after``, whose inputs are this one's outputs, on it.

        Raises:
            InvalidSchedule: the outputs of the one are not the inputs of the other.
        """
        if sorted(self.outputs) != sorted((name, len(images)) for name, images in after.inputs):
            raise InvalidSchedule(
                field="composition of linear layouts",
                got=[f"{name}: {len(images)}" for name, images in after.inputs],
                expected=[f"{name}: {bits}" for name, bits in self.outputs],
                remedy="rename or widen one of them",
            )
        columns = after.ordered(inputs=self.output_names).images
        return LinearLayout(
            tuple((name, tuple(_combine(columns, image) for image in images)) for name, images in self.inputs),
            after.outputs,
        )

    def product(self, outer: LinearLayout) -> LinearLayout:
        """Return the direct sum: bits of ``outer`` go above this layout's where both have a dimension of that name."""
        sizes = dict(self.outputs)
        for name, bits in outer.outputs:
            sizes[name] = sizes.get(name, 0) + bits
        outputs = tuple(sizes.items())
        own_shifts = {name: 0 for name in self.output_names}
        outer_shifts = {name: dict(self.outputs).get(name, 0) for name in outer.output_names}
        merged = {name: _moved(images, self.outputs, outputs, own_shifts) for name, images in self.inputs}
        for name, images in outer.inputs:
            merged[name] = merged.get(name, ()) + _moved(images, outer.outputs, outputs, outer_shifts)
        return LinearLayout(tuple(merged.items()), outputs)

    def divide(self, inner: LinearLayout) -> LinearLayout | None:
        """Return the layout whose product after ``inner`` is this one; None where there is none.

        Dimensions of the quotient that have no bits left are dropped.
        """
        own_inputs, inner_inputs = dict(self.inputs), dict(inner.inputs)
        own_outputs, inner_outputs = dict(self.outputs), dict(inner.outputs)
        if not set(inner_inputs) <= set(own_inputs) or not set(inner_outputs) <= set(own_outputs):
            return None
        if any(own_outputs[name] < bits for name, bits in inner.outputs):
            return None
        rest = tuple((name, bits - inner_outputs.get(name, 0)) for name, bits in self.outputs)
        quotient: list[tuple[str, tuple[int, ...]]] = []
        for name, images in self.inputs:
            upper: list[int] = []
            for image in images[len(inner_inputs.get(name, ())) :]:
                parts = _unpack(image, self.outputs)
                shifts = [inner_outputs.get(target, 0) for target in self.output_names]
                upper.append(_pack([part >> shift for part, shift in zip(parts, shifts, strict=True)], rest))
            quotient.append((name, tuple(upper)))
        result = LinearLayout(
            tuple((name, images) for name, images in quotient if images or name not in inner_inputs),
            tuple((name, bits) for name, bits in rest if bits or name not in inner_outputs),
        )
        whole = inner.product(result).ordered(inputs=self.input_names, outputs=self.output_names)
        return result if whole == self else None

    @property
    def rank(self) -> int:
        """Dimension of the image: ``2**rank`` different values come out."""
        return len(_reduced(self.images))

    @property
    def is_injective(self) -> bool:
        """Whether different inputs come out different."""
        return self.rank == self.input_bits

    @property
    def is_surjective(self) -> bool:
        """Whether every output comes out."""
        return self.rank == self.output_bits

    @property
    def is_bijective(self) -> bool:
        """Whether every output comes out once."""
        return self.is_injective and self.is_surjective

    def inverse(self) -> LinearLayout:
        """Return the layout that undoes this one on both sides.

        Raises:
            InvalidSchedule: there is none, since this one is not bijective.
        """
        if not self.is_bijective:
            raise InvalidSchedule(
                field="inverse of a linear layout",
                got=f"rank {self.rank} of {self.input_bits} bits in, {self.output_bits} bits out",
                expected="a bijective layout",
                remedy="use pseudo_inverse, which undoes it on its image",
            )
        return self.pseudo_inverse()

    def pseudo_inverse(self) -> LinearLayout:
        """Return a layout X with L∘X∘L = L and X∘L∘X = X: on the image it picks one input that comes out so.

        Inputs are picked from the lowest bits that suffice, so a replicating dimension is answered with its copy 0.
        """
        pivots = _reduced(self.images)
        sources = tuple((name, len(images)) for name, images in self.inputs)
        images: list[tuple[str, tuple[int, ...]]] = []
        place = 0
        for name, bits in self.outputs:
            images.append((name, tuple(pivots.get(1 << (place + bit), (0, 0))[1] for bit in range(bits))))
            place += bits
        return LinearLayout(tuple(images), sources)

    def ordered(self, *, inputs: Iterable[str] | None = None, outputs: Iterable[str] | None = None) -> LinearLayout:
        """Return the same map with its dimensions in another order, all of them."""
        images, sizes = dict(self.inputs), dict(self.outputs)
        new_inputs = self.input_names if inputs is None else tuple(inputs)
        new_outputs = self.output_names if outputs is None else tuple(outputs)
        if sorted(new_inputs) != sorted(images) or sorted(new_outputs) != sorted(sizes):
            raise InvalidSchedule(
                field="order of dimensions",
                got=(*new_inputs, *new_outputs),
                expected=(*images, *sizes),
                remedy="name each dimension once",
            )
        targets = tuple((name, sizes[name]) for name in new_outputs)
        none = dict.fromkeys(sizes, 0)
        return LinearLayout(
            tuple((name, _moved(images[name], self.outputs, targets, none)) for name in new_inputs), targets
        )

    def renamed(self, names: Mapping[str, str]) -> LinearLayout:
        """Return the same map with other names, in and out."""
        return LinearLayout(
            tuple((names.get(name, name), images) for name, images in self.inputs),
            tuple((names.get(name, name), bits) for name, bits in self.outputs),
        )

    def matrix(self) -> np.ndarray[Any, Any]:
        """Return the matrix of zeros and ones, an output bit a row, an input bit a column."""
        rows = range(self.output_bits)
        return np.array([[image >> row & 1 for image in self.images] for row in rows], dtype=np.uint8)


def _pack(parts: Sequence[int], sizes: Sequence[tuple[str, int]]) -> int:
    value, place = 0, 0
    for part, (_, bits) in zip(parts, sizes, strict=True):
        value |= part << place
        place += bits
    return value


def _unpack(value: Any, sizes: Sequence[tuple[str, int]]) -> list[Any]:
    parts: list[Any] = []
    place = 0
    for _, bits in sizes:
        parts.append(value >> place & ((1 << bits) - 1))
        place += bits
    return parts


def _moved(
    images: Sequence[int],
    sizes: Sequence[tuple[str, int]],
    targets: Sequence[tuple[str, int]],
    shifts: Mapping[str, int],
) -> tuple[int, ...]:
    # The same images where the outputs are `targets`, each part moved up within its output.
    moved: list[int] = []
    for image in images:
        parts = {name: part << shifts[name] for (name, _), part in zip(sizes, _unpack(image, sizes), strict=True)}
        moved.append(_pack([parts.get(name, 0) for name, _ in targets], targets))
    return tuple(moved)


def _combine(columns: Sequence[int], choice: int) -> int:
    value = 0
    for index, column in enumerate(columns):
        if choice >> index & 1:
            value ^= column
    return value


def _reduced(columns: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return a reduced basis of the columns' span: its pivot bit -> (vector, the choice of columns that sums to it)."""
    basis: dict[int, tuple[int, int]] = {}
    for index, column in enumerate(columns):
        vector, choice = column, 1 << index
        for pivot, (known, chosen) in basis.items():
            if vector & pivot:
                vector, choice = vector ^ known, choice ^ chosen
        if not vector:
            continue
        lowest = vector & -vector
        for pivot, (known, chosen) in basis.items():
            if known & lowest:
                basis[pivot] = (known ^ vector, chosen ^ choice)
        basis[lowest] = (vector, choice)
    return basis
