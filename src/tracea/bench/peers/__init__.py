"""The peers: each runs a problem the best way that its library offers."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from tracea.bench.peers import inductor, onnxruntime, openvino, torch
from tracea.core.names import meant, near
from tracea.doctor.installed import require_torch
from tracea.errors import InvalidOption, ToolchainMissing

if TYPE_CHECKING:
    from tracea.bench.peers.peer import Family, Peer

__all__ = ["FAMILIES", "peers", "require_peers", "surroundings"]

FAMILIES: Final[dict[str, Family]] = {
    "torch": torch.FAMILY,
    "inductor": inductor.FAMILY,
    "onnxruntime": onnxruntime.FAMILY,
    "openvino": openvino.FAMILY,
}

_PACKAGES: Final = {"onnxruntime": ("onnx", "onnxruntime"), "openvino": ("openvino",)}  # beside PyTorch
_INSTALL: Final = "pip install 'tracea[bench]'"  # the extra of pyproject.toml that has them all


def require_peers(families: tuple[str, ...]) -> None:
    """Raise where a named family's library is not installed, before anything is measured and without importing it.

    PyTorch is needed in any case: its allocator makes the new memory of both sides.

    Raises: ToolchainMissing: it is not.
    """
    require_torch()
    absent = {family: [name for name in _PACKAGES.get(family, ()) if find_spec(name) is None] for family in families}
    for family, packages in absent.items():
        if packages:
            present = ",".join(name for name in families if not absent[name]) or "torch"
            raise ToolchainMissing(
                tool=family,
                searched=packages,
                remedy=f"{_INSTALL}, or compare with what is installed: --against {present}",
            )


def peers(families: tuple[str, ...]) -> tuple[Peer, ...]:
    """Return the peers of the named families, in order.

    Raises:
        InvalidOption: a family is unknown.
    """
    return tuple(peer for family in families for peer in _family(family).peers)


@contextmanager
def surroundings(families: tuple[str, ...], threads: int) -> Generator[None]:
    """Put every named family in the state in which it is timed, and take it back.

    Raises:
        InvalidOption: a family is unknown.
    """
    with ExitStack() as stack:
        for family in families:
            stack.enter_context(_family(family).surroundings(threads))
        yield


def _family(name: str) -> Family:
    if name not in FAMILIES:
        raise InvalidOption(
            field="against",
            got=name,
            expected=sorted(FAMILIES),
            remedy=f"{meant(near(name, FAMILIES))}name known peers",
        )
    return FAMILIES[name]
