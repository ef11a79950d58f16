"""The peers: each runs a problem the best way that its library offers, into memory that is given once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracea.bench.peers import onnxruntime, torch
from tracea.errors import InvalidOption

if TYPE_CHECKING:
    from tracea.bench.peers.peer import Peer

__all__ = ["FAMILIES", "peers"]

FAMILIES: Final[dict[str, tuple[Peer, ...]]] = {"torch": torch.PEERS, "onnxruntime": onnxruntime.PEERS}


def peers(families: tuple[str, ...]) -> tuple[Peer, ...]:
    """Return the peers of the named families, in order.

    Raises:
        InvalidOption: a family is unknown.
    """
    for family in families:
        if family not in FAMILIES:
            raise InvalidOption(field="against", got=family, expected=sorted(FAMILIES), remedy="name known peers")
    return tuple(peer for family in families for peer in FAMILIES[family])
