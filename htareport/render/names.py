"""Short names of kernels for places where space is short. The full name stays in data, tooltips and files.

Short names may collide: rows are keyed by full names. Every step is linear in the name's length, since names come from
trace files and may be long and hostile; whatever is not shaped like C++ is cut in the middle at most.
"""

from __future__ import annotations

import re
from functools import lru_cache

LONGEST = 64
HOVER = 200
_READ = 4096  # What stands behind this is template arguments of arguments.
_CPP = re.compile(r"^[\w\s:~*&<>,()\[\]{}.\-+=|#/…%']+$")
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
    number type and cutlass's tile name stay. Everything else (C names, triton, copies, markup) stays as it is.
    """
    plain = " ".join(name[: 2 * _READ].split())
    if not _is_cpp(plain):
        return cut(plain if len(name) <= 2 * _READ else name, longest)
    return cut(_from_cpp(plain[:_READ]) or plain, longest)


def _is_cpp(name: str) -> bool:
    return bool(_CPP_START.match(name) and _CPP.match(name)) and not name.startswith(("Memcpy", "Memset"))


def _from_cpp(name: str) -> str:
    name = _ANONYMOUS.sub("", _QUALIFIER.sub("", name))
    if tile := _CUTLASS.match(name):
        return tile[1]
    base, arguments = _outline(name)
    base = _NAMESPACE.sub("", base).strip()
    parts = [base]
    functors = [a or b for a, b in _FUNCTOR.findall(arguments)]
    functor = next((each for each in functors if each not in _VAGUE), functors[0] if functors else "")
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
