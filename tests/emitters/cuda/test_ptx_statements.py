"""Each primitive's inline PTX against its statement, written from the ISA: mnemonic, operands, predicate, clobber.

A fault there compiles, keeps its opcode, and is not in the emulator, which has functions of its own for the primitives.
"""

from __future__ import annotations

import re
from collections import Counter
from importlib.resources import files
from pathlib import Path

import pytest

HEADERS = Path(str(files("tracea.emitters.cuda") / "include" / "tracea" / "primitives"))
TABLE = Path(__file__).with_name("ptx_statements.txt")
_COMMENT = re.compile(r"//[^\n]*")
TEXTS = {path.name: _COMMENT.sub("", path.read_text()) for path in sorted(HEADERS.glob("*.h"))}
SHAPES = TEXTS.pop("wgmma_shapes.h")  # written by a tool, from macros over lists of registers
_FUNCTION = re.compile(r"TRACEA_DEVICE [\w ]+?[ &*]?(\w+(?:<\w+>)?)\(")
_MACRO = re.compile(r"#define (TRACEA_MMA_\w+)\((.*?)\)(.*?[^\\])\n", re.DOTALL)
_OPERAND = re.compile(r'"([=+]?\w)"\s*\(')
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')

Row = tuple[str, str, str]  # name, flags, statement

# The sentences of the ISA's descriptor: 9.7.15, Matrix Descriptor, of sm_90; bits 13-0, 29-16, 45-32 and 63-62.
DESCRIPTOR = (
    "const uint64_t mode = swizzle_bytes == 128 ? 1 : swizzle_bytes == 64 ? 2 : swizzle_bytes == 32 ? 3 : 0; "
    "return static_cast<uint64_t>((address & 0x3ffffU) >> 4) | "
    "(static_cast<uint64_t>((leading_bytes & 0x3ffffU) >> 4) << 16) | "
    "(static_cast<uint64_t>((stride_bytes & 0x3ffffU) >> 4) << 32) | (mode << 62);"
)


def closing(text: str, start: int) -> int:
    """Return where the bracket that opens at ``start`` closes, strings left out."""
    depth, at = 0, start
    while True:
        if text[at] == '"':
            at = _LITERAL.match(text, at).end()  # type: ignore[union-attr]
            continue
        depth += (text[at] in "({[") - (text[at] in ")}]")
        if depth == 0:
            return at
        at += 1


def split(text: str, mark: str) -> list[str]:
    """Return the parts between marks that stand outside of brackets and strings; ``::`` is two marks."""
    parts, at, last = [], 0, 0
    while at < len(text):
        if text[at] == '"':
            at = _LITERAL.match(text, at).end()  # type: ignore[union-attr]
        elif text[at] in "({[":
            at = closing(text, at) + 1
        else:
            if text[at] == mark:
                parts.append(text[last:at])
                last = at + 1
            at += 1
    return [*parts, text[last:]]


def statement(code: str) -> str:
    """Return the text of an asm, each operand's constraint and expression in its place; what has none, at the end."""
    text, *lists = split(code, ":")
    words = "".join(_LITERAL.findall(text)).replace("\\n", " ").replace("\\t", " ")
    operands: list[str] = []
    for each in lists[:2]:
        for part in split(each, ","):
            if part.strip():
                match = _OPERAND.match(part.strip())
                assert match, part
                operands.append(f"{match[1]}({part.strip()[match.end() : -1]})")
    named = {int(number) for number in re.findall(r"%(\d+)", words)}
    spare = "".join(f"({operand})" for number, operand in enumerate(operands) if number not in named)
    filled = re.sub(r"%(\d+)", lambda match: operands[int(match[1])], words)
    return " ".join(filled.split()) + spare


def rows_of(text: str) -> list[Row]:
    """Return what the inline assembly of a header's functions says."""
    code = text
    macros = {m[1]: (m[2].split(", "), m[3].replace("\\\n", " ")) for m in _MACRO.finditer(code)}
    found: list[Row] = []
    for function in _FUNCTION.finditer(code):
        end = closing(code, function.end() - 1) + 1
        if code[end:].lstrip()[:1] != "{":
            continue  # declared only
        begin = code.index("{", end)
        body = code[begin : closing(code, begin) + 1]
        for name, (params, text_of_macro) in macros.items():
            for call in re.finditer(rf"{name}\(", body):
                given = split(body[call.end() : closing(body, call.end() - 1)], ",")
                expanded = text_of_macro
                for param, value in zip(params, given, strict=True):
                    expanded = re.sub(rf"\b{param}\b", value.strip(), expanded)
                body += expanded
        for asm in re.finditer(r"\basm( volatile)?\(", body):
            inner = body[asm.end() : closing(body, asm.end() - 1)]
            clobbers = split(inner, ":")[3:]
            flags = ("v" if asm[1] else "") + ("m" if '"memory"' in "".join(clobbers) else "")
            found.append((function[1], flags or "-", statement(inner)))
    return found


def table() -> list[Row]:
    lines = [line for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    cells = [[cell.strip() for cell in re.split(r" \| ", line, maxsplit=3)] for line in lines]
    return [(name, flags, said) for name, _, flags, said in cells]


def differences(texts: dict[str, str]) -> list[str]:
    """Return what the headers say and the table does not, or the other way round."""
    said = Counter(row for text in texts.values() for row in rows_of(text))
    wanted = Counter(table())
    found = [f"not in the ISA's table: {row}" for row in said - wanted]
    found += [f"missing in the headers: {row}" for row in wanted - said]
    code = " ".join(texts["wgmma.h"].split())
    return found + ([] if DESCRIPTOR in code else ["wgmma_descriptor is not the ISA's"])


# 9.7.15, wgmma.mma_async: d, a-desc, b-desc, scale-d, imm-scale-a, imm-scale-b, imm-trans-a, imm-trans-b. Transposes
# are of 16-bit elements alone, and integers have no scales.
WGMMA = (
    r'"{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " p ", 0;\n\t" "wgmma.mma_async.sync.aligned." shape_and_types '
    r'" {" registers "}, " a ", " b ", p" more ";\n\t}"'
)
_ARE = '"l"(da), "l"(db), "r"(static_cast<uint32_t>(accumulate))'
_TURNED = ', "n"(transpose_a ? 1 : 0), "n"(transpose_b ? 1 : 0)'
_FORMS = {
    "f16": ("k16.f32.f16.f16", '", 1, 1, " ta ", " tb', "+f", _TURNED),
    "bf16": ("k16.f32.bf16.bf16", '", 1, 1, " ta ", " tb', "+f", _TURNED),
    "tf32": ("k8.f32.tf32.tf32", '", 1, 1"', "+f", ""),
    "e4m3": ("k32.f32.e4m3.e4m3", '", 1, 1"', "+f", ""),
    "e5m2": ("k32.f32.e5m2.e5m2", '", 1, 1"', "+f", ""),
    "s8": ("k32.s32.s8.s8", '""', "+r", ""),
}


def shape_differences(text: str) -> list[str]:
    """Return what the header of wgmma's shapes has otherwise than the ISA."""
    code = " ".join(text.replace("\\\n", " ").split())
    found = [] if f"p, more) {WGMMA} " in code else ["the instruction"]
    for name, (types, more, constraint, turned) in _FORMS.items():
        asm = (
            f'asm volatile(TRACEA_WGMMA_TEXT("m64n" #n "{types}", registers, a, b, p, {more}) : list("{constraint}") : '
        )
        sums = "int32_t" if name == "s8" else "float"
        declared = f"void {name}({sums} (&d)[n / 2], uint64_t da, uint64_t db, bool accumulate)"
        found += [] if f'{declared} {{ {asm}{_ARE}{turned} : "memory"); }}' in code else [name]
    for n in (*range(8, 65, 8), *range(80, 129, 16), *range(160, 257, 32)):
        count = n // 2
        lists = f"TRACEA_WGMMA_D{n}(c) {', '.join(f'c(d[{i}])' for i in range(count))} #"
        places = ", ".join(f"%{i}" for i in range(count))
        registers = re.search(rf"#define TRACEA_WGMMA_R{n} (.*?) TRACEA_WGMMA_FLOAT", code)
        joined = "".join(_LITERAL.findall(registers[1])) if registers else ""
        after = [f'"%{count + i}"' for i in range(5)]
        call = f"TRACEA_WGMMA_FLOAT({n}, TRACEA_WGMMA_D{n}, TRACEA_WGMMA_R{n}, {', '.join(after)})"
        found += [] if lists in code and joined == places and call in code else [f"n = {n}"]
        whole = f"TRACEA_WGMMA_INT({n}, TRACEA_WGMMA_D{n}, TRACEA_WGMMA_R{n}, {', '.join(after[:3])})"
        found += [] if whole in code or (n % 16 and n not in {8, 24}) else [f"n = {n} of int8"]
    return found


def test_wgmma_is_the_isas() -> None:
    assert shape_differences(SHAPES) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("setp.ne", "setp.eq"),
        ('"l"(da), "l"(db)', '"l"(db), "l"(da)'),
        ('" a ", " b "', '" b ", " a "'),
        ("transpose_a ? 1 : 0", "transpose_a ? 0 : 1"),
        ("c(d[0]), c(d[1])", "c(d[1]), c(d[0])"),
        ('"%4", "%5"', '"%5", "%4"'),
        ("k32.s32.s8.s8", "k32.s32.u8.s8"),
        ('", 1, 1"', '", 1, -1"'),
    ],
)
def test_a_fault_in_wgmma_is_seen(old: str, new: str) -> None:
    assert old in SHAPES
    assert shape_differences(SHAPES.replace(old, new, 1))


def test_every_statement_is_the_isas() -> None:
    assert differences(TEXTS) == []
    assert len(table()) >= 85


def test_no_asm_is_outside_of_what_is_read() -> None:
    for name, text in TEXTS.items():
        code = text
        macros = sum(m[3].count("asm") for m in _MACRO.finditer(code))
        calls = len(re.findall(r"(?<!define )TRACEA_MMA_\d_\d\(", code))
        assert len(rows_of(text)) == len(re.findall(r"\basm\b", code)) - macros + calls, name


FAULTS = (
    ("async.h", '16, %2;" ::', '16;" ::'),
    ("async.h", '"n"(pending)', '"n"(pending + 1)'),
    ("convert.h", "cvt.rn.f16", "cvt.rz.f16"),
    ("convert.h", '"=h"(pair) : "f"(0.0F), "f"(x)', '"=h"(pair) : "f"(x), "f"(0.0F)'),
    ("matrix.h", '"=r"(r[0]), "=r"(r[1]), "=r"(r[2])', '"=r"(r[0]), "=r"(r[2]), "=r"(r[1])'),
    ("matrix.h", '" {%0, %1, %2, %3}, {%4, %5, %6, %7}', '" {%0, %1, %2, %3}, {%4, %6, %5, %7}'),
    ("matrix.h", "s8.s32 {%0, %1, %2, %3}, {%4, %5, %6", "s8.s32 {%0, %1, %2, %3}, {%4, %6, %5"),
    ("mbarrier.h", "@!done", "@done"),
    ("memory.h", "ld.acquire", "ld.relaxed"),
    ("memory.h", "st.release", "st.relaxed"),
    ("memory.h", "fence.acq_rel.gpu", "fence.acq_rel.cta"),
    ("sync.h", '"r"(threads)', '"r"(threads + 32)'),
    ("sync.h", "1, 0, p", "0, 1, p"),
    ("tma.h", '"r"(c[0]), "r"(c[1])\n', '"r"(c[1]), "r"(c[0])\n'),
    ("tma.h", "wait_group.read", "wait_group"),
    ("wgmma.h", "== 128 ? 1 : swizzle_bytes == 64 ? 2", "== 128 ? 2 : swizzle_bytes == 64 ? 1"),
    ("wgmma.h", "<< 16", "<< 17"),
    ("async.h", ' ::: "memory"', " :::"),
    ("mbarrier.h", '"r"(address), "r"(count)', '"r"(count), "r"(address)'),
)


@pytest.mark.parametrize(("header", "old", "new"), FAULTS)
def test_a_fault_in_an_operand_is_seen(header: str, old: str, new: str) -> None:
    assert old in TEXTS[header]
    for place in re.finditer(re.escape(old), TEXTS[header]):
        text = TEXTS[header][: place.start()] + new + TEXTS[header][place.end() :]
        assert differences({**TEXTS, header: text})
