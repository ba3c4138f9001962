"""Short names of kernels for tables and charts. The full name stays in data, tooltips and files.

Short names may collide: rows are keyed by full names, and `labels` adds a difference to those shown together. Each step
is linear in the name's length, since names come from trace files and may be long and hostile; whatever is not shaped
like C++ is only cut in the middle. Characters that are invisible or turn the reading direction are spelled out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain

MAX_LABEL = 64
MAX_HOVER = 200
NO_NAME = "(no name)"
_MAX_READ = 4096  # Characters; after these come template arguments of arguments.
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
_GENERIC_FUNCTORS = {"ReduceOp", "func_wrapper_t", "Op", "Func"}
_DTYPE = re.compile(
    r"\b(?:c10::)?(BFloat16|Half|Float8_\w{1,20}|float|double|__nv_bfloat16|__half|__hip_bfloat16)\b"
    r"|\bcutlass::(bfloat16_t|half_t|float_e4m3_t|float_e5m2_t)\b"
)
_DTYPE_LABEL = {
    "BFloat16": "bf16", "__nv_bfloat16": "bf16", "__hip_bfloat16": "bf16", "bfloat16_t": "bf16", "Half": "fp16",
    "__half": "fp16", "half_t": "fp16", "float": "fp32", "double": "fp64", "float_e4m3_t": "fp8", "float_e5m2_t": "fp8",
}  # fmt: skip
_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_LINE_BREAKS = str.maketrans("\t\n\r", "␉␊␍")
_ARROW = " → "
_MAX_CHAIN_END = 4  # Kernels at either end of a chain of them in one name; those between are not shown.
_REPEATED = re.compile(r"( ×\d+)$")
_NOT_CPP_SUFFIX = re.compile(r"(?!const\b|noexcept\b)[#\w%/|-]")  # What C++ does not have after the parameters.
_MANGLED = re.compile(r"_Z(N[rVK]*)?(?=\d)")
_LENGTH = re.compile(r"\d{1,3}")
_FIRST_ARGUMENT = re.compile(r"I(?:L[a-z]n?\d+E)*N?(?:S[\dA-Z]*_|St)?(?=\d)")
# What a mangled name is made of: references to earlier text, a number type, numbers, lengths of identifiers.
_MANGLED_TOKEN = re.compile(r"S[\dA-Z]*_|T\d*_|DF\d+[b_]?|L[a-z](n?\d+)E|E(\d+)E|(\d{1,3})(?=[A-Za-z_])")
_WORD = re.compile(r"[A-Za-z_]\w*|\d+")
_NOISE = {
    "void", "at", "native", "const", "std", "lambda", "operator", "detail", "anonymous", "namespace", "c10", "array",
    "Array", "cub", "thrust", "impl", "at_cuda_detail",
}  # fmt: skip
_MAX_COMPARED = 2000  # Characters of names that are compared,
_MAX_COMPARED_NAMES = 48  # in groups of no more than so many names; larger groups are numbered.
_MAX_DIFFERENCE_WORD = 28
_MAX_DIFFERENCE = 40
_DOT = "· "


def visible(text: str) -> str:
    """Return text with its invisible characters, and those that turn the reading direction, spelled out.

    Tabs and ends of lines stay: they are white space.
    """
    return _HIDDEN.sub(_spelled, text)


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code <= 0x20 or code == 0x7F:  # noqa: PLR2004  Unicode has pictures for these
        return chr(0x2421 if code == 0x7F else 0x2400 + code)  # noqa: PLR2004
    return "\ufffd" if 0xD800 <= code <= 0xDFFF else f"⟨U+{code:04X}⟩"  # noqa: PLR2004  surrogates cannot be written


def label(name: str, max_length: int = MAX_LABEL) -> str:
    """Return the short form of a name, and a placeholder for a blank one."""
    return short(name, max_length) or NO_NAME


def labels(names: Iterable[str], max_length: int = MAX_LABEL) -> dict[str, str]:
    """Return a label for each of some names that are shown together: equal ones say in what their names differ."""
    # Names with one label get the word in which they differ, twice if one word is not enough; those that still look the
    # same are numbered.
    label_by_name = {name: label(name, max_length) for name in names}
    difference_by_name: dict[str, str] = {}
    for differences_of in (_differences, _differences, _numbers):
        for same_label in _same_label_groups(label_by_name):
            for name, difference in zip(same_label, differences_of(same_label), strict=True):
                suffix = difference_by_name[name] = _joined(difference_by_name.get(name, ""), difference)
                if suffix:
                    label_by_name[name] = f"{label(name, max_length - len(suffix) - 1)} {suffix}"
    return label_by_name


def _same_label_groups(label_by_name: dict[str, str]) -> list[list[str]]:
    """Return the names of each label that several have."""
    groups: dict[str, list[str]] = {}
    for name, shown in label_by_name.items():
        groups.setdefault(shown, []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def _joined(differences: str, difference: str) -> str:
    """Return the differences of a name with one more, if that is not too long."""
    if not differences or not difference:
        return differences or difference
    if difference.startswith("#"):
        return f"{differences} {difference}"
    joined = f"{differences}, {difference.removeprefix(_DOT)}"
    return joined if len(joined) <= _MAX_DIFFERENCE else differences


def _differences(names: Sequence[str]) -> list[str]:
    """Return for each name the first word that no other has (a functor, a type, a number), else what few have."""
    if len(names) > _MAX_COMPARED_NAMES:
        return [""] * len(names)
    word_lists = [list(dict.fromkeys(_compared_words(name))) for name in names]
    count = Counter(word for words in word_lists for word in words if word not in _NOISE)
    rare_words = [[word for word in words if 0 < count[word] < len(names)] for words in word_lists]
    return [_difference(sorted(words, key=lambda word: (count[word], word.isdigit())), count) for words in rare_words]


def _compared_words(name: str) -> list[str]:
    """Return the words of a name that are compared; the last word of what is cut off may be incomplete."""
    return _words(visible(name[:_MAX_COMPARED]))[: -1 if len(name) > _MAX_COMPARED else None]


def _words(name: str) -> list[str]:
    """Return a name's words; long ones, such as whole C names, are split at underscores."""
    if _MANGLED.match(name):
        return _mangled_words(name)
    split_words = ([word] if len(word) <= _MAX_DIFFERENCE_WORD else word.split("_") for word in _WORD.findall(name))
    return list(filter(None, chain.from_iterable(split_words)))


def _mangled_words(name: str) -> list[str]:
    """Return the identifiers and numbers of a mangled name."""
    words, position = list[str](), 0
    while match := _MANGLED_TOKEN.search(name, position):
        position = match.end() + int(match[3] or 0)
        words.append(name[match.end() : position] if match[3] else match[1] or match[2] or "")
    return [word for word in words if word]


def _difference(rare_words: Sequence[str], count: Counter[str]) -> str:
    """Return a dot and the word that only this name has, or two words where there is no such word."""
    words = rare_words[: 1 if rare_words and count[rare_words[0]] == 1 else 2]
    return f"{_DOT}{cut(', '.join(words), _MAX_DIFFERENCE_WORD)}" if words else ""


def _numbers(names: Sequence[str]) -> list[str]:
    return [f"#{i}" for i in range(1, len(names) + 1)]


def cut(name: str, max_length: int = MAX_LABEL) -> str:
    """Return `name` with its middle replaced by an ellipsis where it is longer than `longest` characters."""
    if len(name) <= max_length:
        return name
    head_length = max_length * 2 // 3
    return f"{name[:head_length]}…{name[len(name) - (max_length - head_length - 1) :]}"


def cut_end(text: str, max_length: int) -> str:
    """Return a text that ends in an ellipsis where it is longer than `max_length` characters."""
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"


@lru_cache(maxsize=65536)
def short(name: str, max_length: int = MAX_LABEL) -> str:
    """Return a readable name of no more than `max_length` characters.

    C++ names lose return type, parameters, known namespaces and template bodies; they keep the functor (in brackets),
    the number type and the tile name of cutlass. Mangled names keep the function and its first template argument (in
    brackets). All others (C names, Triton, copies, markup) stay as they are. In a chain of names, joined by arrows,
    each is shortened.
    """
    plain = " ".join(visible(cut(name, 2 * _MAX_READ).translate(_LINE_BREAKS)).split())
    kernels = plain.split(_ARROW)
    if len(kernels) > 2 * _MAX_CHAIN_END:
        kernels = [*kernels[:_MAX_CHAIN_END], "…", *kernels[-_MAX_CHAIN_END:]]
    return cut(_ARROW.join(map(_short_kernel, kernels)), max_length)


def _short_kernel(plain: str) -> str:
    if not _is_cpp(plain):
        return _from_mangled(plain) or plain
    times = _REPEATED.search(plain[-16:])
    return (_from_cpp(plain[:_MAX_READ]) or plain) + (times[1] if times else "")


def _is_cpp(name: str) -> bool:
    if not (_CPP_START.match(name) and _CPP.match(name)) or name.startswith(("Memcpy", "Memset")):
        return False
    return not _NOT_CPP_SUFFIX.match(_text_after_parameters(name))


def _text_after_parameters(name: str) -> str:
    """Return the text after the first closed pair of round brackets outside of other brackets."""
    angle_depth = depth = 0
    for bracket in re.finditer(r"[()<>]", name[:_MAX_READ]):
        if bracket[0] in "<>":
            angle_depth = max(0, angle_depth + (1 if bracket[0] == "<" else -1)) if not depth else angle_depth
        elif not angle_depth:
            depth += 1 if bracket[0] == "(" else -1
            if depth <= 0:
                return name[bracket.end() :]
    return ""


def _from_mangled(name: str) -> str:
    """Return function and first template argument of a name mangled by GCC or Clang; empty if it is none."""
    start = _MANGLED.match(name)
    path, end = _identifiers(name, start.end()) if start else ([], 0)
    if not start or not path:
        return ""
    function = _NAMESPACE.sub("", "::".join(path)) if start[1] else path[0]
    argument = _FIRST_ARGUMENT.match(name, end) if start[1] else None
    classes = _identifiers(name, argument.end())[0] if argument else []
    functor = f"{function} [{classes[-1]}]" if classes else function
    return functor if len(functor) <= MAX_LABEL else function


def _identifiers(name: str, position: int) -> tuple[list[str], int]:
    """Return the identifiers from a position on, each written after its length, and where they end."""
    identifiers = list[str]()
    while length := _LENGTH.match(name, position):
        end = length.end() + int(length[0])
        if end > len(name):
            break
        identifiers.append(name[length.end() : end])
        position = end
    return [identifier for identifier in identifiers if not identifier.startswith("_GLOBAL__N")], position


def _from_cpp(name: str) -> str:
    name = _ANONYMOUS.sub("", _QUALIFIER.sub("", name))
    if tile := _CUTLASS.match(name):
        return tile[1]
    base, arguments = _outline(name)
    base = _NAMESPACE.sub("", base).strip()
    words = [base]
    functors = [first or second for first, second in _FUNCTOR.findall(arguments)]
    functor = next((name for name in functors if name not in _GENERIC_FUNCTORS), functors[0] if functors else "")
    if functor and functor not in base:
        words.append(f"[{functor}]")
    dtype = next((first or second for first, second in _DTYPE.findall(arguments)), None)
    if dtype:
        words.append(_DTYPE_LABEL.get(dtype, dtype))
    return " ".join(words)


def _outline(name: str) -> tuple[str, str]:
    """Return the text outside template brackets, up to the parameters, and the text inside them."""
    outside, inside, depth = list[str](), list[str](), 0
    for fragment in re.split(r"([<>(])", name):
        if fragment == "(" and not depth and outside:
            break
        if fragment == "<":
            depth += 1
        elif fragment == ">" and depth:
            depth -= 1
            inside.append(" ")
            continue
        (inside if depth else outside).append(fragment)
    return "".join(outside), "".join(inside)
