"""What a CUBIN says about its kernels: registers, stack, shared memory and parameters, read from its ELF sections.

Worked example: ``read_cubin(data)["gemm"].registers`` is 168. Spilled bytes are not in the file: `ptxas_log` has them.

Source: the sections ``.nv.info`` (attributes EIATTR_REGCOUNT, _FRAME_SIZE, _MIN_STACK_SIZE, _MAX_THREADS and
_KPARAM_INFO as cuobjdump and nvdisasm name them), ``.nv.shared.<kernel>`` and ``.text.<kernel>``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tracea.errors import InvalidOption

__all__ = ["CubinKernel", "read_cubin"]

_MACHINE_CUDA: Final = 190
_REGISTERS: Final = 0x2F
_FRAME: Final = 0x11
_STACK: Final = 0x12
_MAX_THREADS: Final = 0x05
_PARAMETERS: Final = 0x17
# How an attribute's value is stored: inside the entry, or as so many bytes after it.
_SIZED: Final = 4
# From sm_90 on every block's shared memory begins with what the system keeps for itself.
_RESERVED_FROM_SM: Final = 90
_RESERVED_BYTES: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CubinKernel:
    """One entry point. ``static_shared_bytes`` leaves out what the system reserves; a launch adds its dynamic ones.

    ``max_threads`` is the launch bound, 0 where the kernel states none.
    """

    name: str
    sm: int
    registers: int
    stack_bytes: int
    static_shared_bytes: int
    reserved_shared_bytes: int
    parameter_bytes: int
    max_threads: int
    code_bytes: int


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    offset: int
    size: int
    link: int


def read_cubin(data: bytes) -> Mapping[str, CubinKernel]:
    """Return the kernels of a CUBIN by name.

    Raises:
        InvalidOption: the bytes are not a CUBIN, or are cut short.
    """
    try:
        return _Reader(data).kernels()
    except (struct.error, ValueError, IndexError, KeyError) as error:
        raise InvalidOption(
            field="cubin",
            got=f"{len(data)} bytes: {error}",
            expected="an ELF file of machine 190 with a symbol table",
            remedy="compile the text again",
        ) from error


class _Reader:
    def __init__(self, data: bytes) -> None:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("no 64-bit little-endian ELF header")
        machine = _unpack("<H", data, 18)
        if machine != _MACHINE_CUDA:
            raise ValueError(f"ELF machine {machine}")
        self._data = data
        self.sm = _unpack("<I", data, 48) >> 8 & 0xFF
        table, (size, count, names) = _unpack("<Q", data, 40), struct.unpack_from("<HHH", data, 58)
        headers = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)]
        strings = headers[names][4]
        self.sections = [
            _Section(self._text(strings + header[0]), offset=header[4], size=header[5], link=header[6])
            for header in headers
        ]
        self._by_name = {section.name: section for section in self.sections}

    def kernels(self) -> dict[str, CubinKernel]:
        per_symbol = self._symbol_attributes()
        reserved = _RESERVED_BYTES if self.sm >= _RESERVED_FROM_SM else 0
        found: dict[str, CubinKernel] = {}
        for section in self.sections:
            # Functions that are not entry points have a text and no section of attributes.
            name = section.name.removeprefix(".text.")
            if name == section.name or f".nv.info.{name}" not in self._by_name:
                continue
            attributes = list(self._attributes(self._by_name[f".nv.info.{name}"]))
            own = dict(attributes)
            shared = self._by_name.get(f".nv.shared.{name}")
            values = per_symbol[name]
            threads = struct.unpack_from("<III", own[_MAX_THREADS]) if _MAX_THREADS in own else (0, 0, 0)
            found[name] = CubinKernel(
                name=name,
                sm=self.sm,
                registers=values[_REGISTERS],
                stack_bytes=max(values.get(_FRAME, 0), values.get(_STACK, 0)),
                static_shared_bytes=max(0, shared.size - reserved) if shared is not None else 0,
                reserved_shared_bytes=reserved,
                parameter_bytes=_parameter_bytes([value for kind, value in attributes if kind == _PARAMETERS]),
                max_threads=threads[0] * threads[1] * threads[2],
                code_bytes=section.size,
            )
        return found

    def _symbol_attributes(self) -> dict[str, dict[int, int]]:
        """Return the attributes of ``.nv.info``, each of which names a symbol, by symbol."""
        symbols = self._by_name[".symtab"]
        strings = self.sections[symbols.link].offset
        found: dict[str, dict[int, int]] = {}
        for attribute, value in self._attributes(self._by_name[".nv.info"]):
            if attribute in (_REGISTERS, _FRAME, _STACK):
                symbol, number = struct.unpack_from("<II", value)
                name = self._text(strings + _unpack("<I", self._data, symbols.offset + 24 * symbol))
                found.setdefault(name, {})[attribute] = number
        return found

    def _attributes(self, section: _Section) -> Iterator[tuple[int, bytes]]:
        at, end = section.offset, section.offset + section.size
        while at < end:
            form, attribute, size = struct.unpack_from("<BBH", self._data, at)
            at += 4
            if form == _SIZED:
                if at + size > len(self._data):
                    raise ValueError(f"{section.name} ends inside an attribute")
                yield attribute, self._data[at : at + size]
                at += size

    def _text(self, at: int) -> str:
        return self._data[at : self._data.index(0, at)].decode()


def _unpack(form: str, data: bytes, at: int) -> int:
    return int(struct.unpack_from(form, data, at)[0])


def _parameter_bytes(entries: list[bytes]) -> int:
    """Return the bytes from the first parameter's begin to the last one's end.

    The first does not begin at 0 where its alignment asks for more than the parameters' place in the constant bank has.
    """
    begins = [_unpack("<H", entry, 6) for entry in entries]
    ends = [begin + (_unpack("<I", entry, 8) >> 18) for begin, entry in zip(begins, entries, strict=True)]
    return max(ends, default=0) - min(begins, default=0)
