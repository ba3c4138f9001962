"""Short names of kernels for places where space is short. The full name stays in data, tooltips and files.

Short names may collide: rows are keyed by full names, and `labels` tells apart what is shown together. Every step is
linear in the name's length, since names come from trace files and may be long and hostile; whatever is not shaped like
C++ is cut in the middle at most. What a name holds of characters that do not show, or that turn the reading direction,
is spelled out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

LONGEST = 64
HOVER = 200
NO_NAME = "(no name)"
_READ = 4096  # What stands behind this is template arguments of arguments.
_CPP = re.compile(r"^[\w\s:~*&<>,()\[\]{}.\-+=|#/…%'×]+$")
_CPP_START = re.compile(r"^(?:void |(?:::)?(?:\w+::)*\w+[<(])")
_ANONYMOUS = re.compile(r"\((?:anonymous namespace|anonymous)\)::|<unnamed>::|_GLOBAL__N__\w{1,200}?::")
_QUALIFIER = re.compile(r"^(?:__global__ )?(?:void|static|auto) +")
_CUTLASS = re.compile(r"^cutlass::(?:device_kernel|Kernel2?)<(?:cutlass_)?(\w{1,400})>")
_NAMESPACE = re.compile(
    r"\b(?:at::native|at::cuda|at_cuda_detail|at|c10|cutlass|pytorch_flash|flash|vllm|std|"
    r"(?:thrust|cub|rocprim|hipcub|ck|ck_tile)(?:::[a-z_]\w{0,60}){0,4})::"
)
_FUNCTOR = re.compile(r"\b(\w{0,80}(?:Functor|functor|Func|Op|Ops))\b(?!::)|\b((?:CUDA)?Functor_\w{1,60})")
_VAGUE = {"ReduceOp", "func_wrapper_t", "Op", "Func"}
_DTYPE = re.compile(
    r"\b(?:c10::)?(BFloat16|Half|Float8_\w{1,20}|float|double|__nv_bfloat16|__half|__hip_bfloat16)\b"
    r"|\bcutlass::(bfloat16_t|half_t|float_e4m3_t|float_e5m2_t)\b"
)
_NICE_DTYPE = {
    "BFloat16": "bf16", "__nv_bfloat16": "bf16", "__hip_bfloat16": "bf16", "bfloat16_t": "bf16", "Half": "fp16",
    "__half": "fp16", "half_t": "fp16", "float": "fp32", "double": "fp64", "float_e4m3_t": "fp8", "float_e5m2_t": "fp8",
}  # fmt: skip
_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_BREAKS = str.maketrans("\t\n\r", "␉␊␍")
_ARROW = " → "
_LINKS = 4  # At either end of a chain of kernels in one name; what is between is not read.
_REPEATED = re.compile(r"( ×\d+)$")
_GOES_ON = re.compile(r"(?!const\b|noexcept\b)[#\w%/|-]")  # Behind the parameters: C++ has nothing of the kind there.
_MANGLED = re.compile(r"_Z(N[rVK]*)?(?=\d)")
_LENGTH = re.compile(r"\d{1,3}")
_FIRST_ARGUMENT = re.compile(r"I(?:L[a-z]n?\d+E)*N?(?:S[\dA-Z]*_|St)?(?=\d)")
# What a mangled name is made of: references to what stood before, a number type, numbers, lengths of identifiers.
_PIECE = re.compile(r"S[\dA-Z]*_|T\d*_|DF\d+[b_]?|L[a-z](n?\d+)E|E(\d+)E|(\d{1,3})(?=[A-Za-z_])")
_WORD = re.compile(r"[A-Za-z_]\w*|\d+")
_NOISE = {
    "void", "at", "native", "const", "std", "lambda", "operator", "detail", "anonymous", "namespace", "c10", "array",
    "Array", "cub", "thrust", "impl", "at_cuda_detail",
}  # fmt: skip
_COMPARED = 2000  # Characters of names that are read to tell them apart,
_MOST_COMPARED = 48  # in groups of no more than so many names: the others are numbered.
_LONGEST_MARK = 28
_MOST_TOLD = 40
_DOT = "· "


def visible(text: str) -> str:
    """Return text with its control characters, and those that do not show or turn the reading direction, spelled out.

    Tabs and ends of lines stay: they are white space.
    """
    return _HIDDEN.sub(_spelled, text)


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code <= 0x20 or code == 0x7F:  # noqa: PLR2004  Unicode has pictures for these
        return chr(0x2421 if code == 0x7F else 0x2400 + code)  # noqa: PLR2004
    return "\ufffd" if 0xD800 <= code <= 0xDFFF else f"⟨U+{code:04X}⟩"  # noqa: PLR2004  surrogates cannot be written


def label(name: str, longest: int = LONGEST) -> str:
    """Return what is shown of a name where space is short: its short form, and something even if it is blank."""
    return short(name, longest) or NO_NAME


def labels(given: Iterable[str], longest: int = LONGEST) -> dict[str, str]:
    """Return a label for each of some names that are shown together: equal ones say in what their names differ."""
    shown = {name: label(name, longest) for name in given}
    told: dict[str, str] = {}
    for marks in (_differences, _differences, _numbers):
        for same in _alike(shown):
            for name, mark in zip(same, marks(same), strict=True):
                told[name] = _joined(told.get(name, ""), mark)
                if told[name]:
                    shown[name] = f"{label(name, longest - len(told[name]) - 1)} {told[name]}"
    return shown


def _alike(shown: dict[str, str]) -> list[list[str]]:
    """Return the groups of names that are shown as the same."""
    groups: dict[str, list[str]] = {}
    for name, text in shown.items():
        groups.setdefault(text, []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def _joined(told: str, mark: str) -> str:
    """Return what tells a name apart with one mark more, if there is room."""
    if not told or not mark:
        return told or mark
    joined = f"{told} {mark}" if mark.startswith("#") else f"{told}, {mark.removeprefix(_DOT)}"
    return joined if len(joined) <= _MOST_TOLD or mark.startswith("#") else told


def _differences(same: Sequence[str]) -> list[str]:
    """Return for each name the first word that no other has (a functor, a type, a number), else what few have."""
    if len(same) > _MOST_COMPARED:
        return [""] * len(same)
    words = [dict.fromkeys(_words(visible(name[:_COMPARED]))[: -1 if len(name) > _COMPARED else None]) for name in same]
    count = Counter(word for each in words for word in each if word not in _NOISE)
    return [_mark(sorted((word for word in each if 0 < count[word] < len(same)), key=lambda w: (count[w], w.isdigit())),
                  count) for each in words]  # fmt: skip


def _words(name: str) -> list[str]:
    """Return a name's words; of long ones, such as whole C names, their parts."""
    if _MANGLED.match(name):
        return _pieces(name)
    parts = ([word] if len(word) <= _LONGEST_MARK else word.split("_") for word in _WORD.findall(name))
    return [part for each in parts for part in each if part]


def _pieces(name: str) -> list[str]:
    """Return the identifiers and numbers of a mangled name."""
    found, at = list[str](), 0
    while match := _PIECE.search(name, at):
        at = match.end() + int(match[3] or 0)
        found.append(name[match.end() : at] if match[3] else match[1] or match[2] or "")
    return [piece for piece in found if piece]


def _mark(rare: Sequence[str], count: Counter[str]) -> str:
    """Put the word that tells a name apart, two where none does it alone, behind a dot."""
    told = rare[: 1 if rare and count[rare[0]] == 1 else 2]
    return f"{_DOT}{cut(', '.join(told), _LONGEST_MARK)}" if told else ""


def _numbers(same: Sequence[str]) -> list[str]:
    return [f"#{i}" for i in range(1, len(same) + 1)]


def cut(name: str, longest: int = LONGEST) -> str:
    """Return `name` with its middle replaced by an ellipsis where it is longer than `longest` characters."""
    if len(name) <= longest:
        return name
    head = longest * 2 // 3
    return f"{name[:head]}…{name[len(name) - (longest - head - 1) :]}"


@lru_cache(maxsize=65536)
def short(name: str, longest: int = LONGEST) -> str:
    """Return a readable name of at most `longest` characters.

    From C++ names go the return type, parameters, known namespaces and template bodies; the functor (in brackets), the
    number type and cutlass's tile name stay. Of mangled ones stay the function and its first template argument (in
    brackets). Everything else (C names, triton, copies, markup) stays as it is. In a
    chain of names, joined by arrows, each is made short.
    """
    plain = " ".join(visible(cut(name, 2 * _READ).translate(_BREAKS)).split())
    chain = plain.split(_ARROW)
    if len(chain) > 2 * _LINKS:
        chain = [*chain[:_LINKS], "…", *chain[-_LINKS:]]
    return cut(_ARROW.join(map(_one, chain)), longest)


def _one(plain: str) -> str:
    if not _is_cpp(plain):
        return _from_mangled(plain) or plain
    times = _REPEATED.search(plain[-16:])
    return (_from_cpp(plain[:_READ]) or plain) + (times[1] if times else "")


def _is_cpp(name: str) -> bool:
    if not (_CPP_START.match(name) and _CPP.match(name)) or name.startswith(("Memcpy", "Memset")):
        return False
    return not _GOES_ON.match(_behind_parameters(name))


def _behind_parameters(name: str) -> str:
    """Return what follows the first closed pair of round brackets that stands outside of other brackets."""
    angles = depth = 0
    for bracket in re.finditer(r"[()<>]", name[:_READ]):
        if bracket[0] in "<>":
            angles = max(0, angles + (1 if bracket[0] == "<" else -1)) if not depth else angles
        elif not angles:
            depth += 1 if bracket[0] == "(" else -1
            if depth <= 0:
                return name[bracket.end() :]
    return ""


def _from_mangled(name: str) -> str:
    """Return what matters of a name mangled as GCC and Clang do it; empty if it is none."""
    start = _MANGLED.match(name)
    path, end = _identifiers(name, start.end()) if start else ([], 0)
    if not start or not path:
        return ""
    base = _NAMESPACE.sub("", "::".join(path)) if start[1] else path[0]
    argument = _FIRST_ARGUMENT.match(name, end) if start[1] else None
    classes = _identifiers(name, argument.end())[0] if argument else []
    functor = f"{base} [{classes[-1]}]" if classes else base
    return functor if len(functor) <= LONGEST else base


def _identifiers(name: str, at: int) -> tuple[list[str], int]:
    """Return the identifiers from a place on, each of which has its length before it, and where they end."""
    identifiers = list[str]()
    while length := _LENGTH.match(name, at):
        end = length.end() + int(length[0])
        if end > len(name):
            break
        identifiers.append(name[length.end() : end])
        at = end
    return [one for one in identifiers if not one.startswith("_GLOBAL__N")], at


def _from_cpp(name: str) -> str:
    name = _ANONYMOUS.sub("", _QUALIFIER.sub("", name))
    if tile := _CUTLASS.match(name):
        return tile[1]
    base, arguments = _outline(name)
    base = _NAMESPACE.sub("", base).strip()
    parts = [base]
    functors = [a or b for a, b in _FUNCTOR.findall(arguments)]
    functor = next((functor for functor in functors if functor not in _VAGUE), functors[0] if functors else "")
    if functor and functor not in base:
        parts.append(f"[{functor}]")
    dtype = next((a or b for a, b in _DTYPE.findall(arguments)), None)
    if dtype:
        parts.append(_NICE_DTYPE.get(dtype, dtype))
    return " ".join(parts)


def _outline(name: str) -> tuple[str, str]:
    """Split into what stands outside template brackets, up to the parameters, and what stands inside."""
    outside, inside, depth = list[str](), list[str](), 0
    for piece in re.split(r"([<>(])", name):
        if piece == "(" and not depth and outside:
            break
        if piece == "<":
            depth += 1
        elif piece == ">" and depth:
            depth -= 1
            inside.append(" ")
            continue
        (inside if depth else outside).append(piece)
    return "".join(outside), "".join(inside)
