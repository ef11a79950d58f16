"""Whether torch records the operators that this thread calls: native code leaves a constant there."""

from __future__ import annotations

import sys

from tracea.errors import InvalidDevice

__all__ = ["is_traced", "refuse_traced"]


def is_traced() -> bool:
    """Tell whether ``make_fx`` or ``torch.jit.trace`` follows this thread, real values in hand.

    Modes that only look at operators (counters of calls or flops) record nothing that is run again.
    """
    return _tracer() is not None


def refuse_traced(field: str) -> None:
    """Refuse a tensor whose way is being recorded.

    Raises: InvalidDevice.
    """
    tracer = _tracer()
    if tracer is not None:
        raise InvalidDevice(
            field=field,
            got=f"a tensor that {tracer} follows",
            expected="a call that no trace records: the result would be a constant in it",
            remedy="trace the original torch code, or call through a registered torch op",
        )


def _tracer() -> str | None:
    proxies = sys.modules.get("torch.fx.experimental.proxy_tensor")  # not loaded: nothing can trace by proxies
    if proxies is not None and proxies.get_proxy_mode() is not None:
        return "make_fx"
    torch = sys.modules.get("torch")
    if torch is not None and torch._C._get_tracing_state() is not None:
        return "torch.jit.trace"
    return None
