"""HTA's switches in the environment; "1" is on."""

from __future__ import annotations

import os

HTA_DISABLE_NS_ROUNDING_ENV = "HTA_DISABLE_NS_ROUNDING"
HTA_DISABLE_CG_DEPTH_ENV = "HTA_DISABLE_CG_DEPTH"
CP_LAUNCH_EDGE_ENV = "CRITICAL_PATH_ADD_ZERO_WEIGHT_LAUNCH_EDGE"
CP_LAUNCH_EDGE_SHOW_ENV = "CRITICAL_PATH_SHOW_ZERO_WEIGHT_LAUNCH_EDGE"
CP_STRICT_NEG_WEIGHT_CHECK_ENV = "CRITICAL_PATH_STRICT_NEGATIVE_WEIGHT_CHECKS"
_NAMES = (
    *(HTA_DISABLE_NS_ROUNDING_ENV, HTA_DISABLE_CG_DEPTH_ENV),
    *(CP_LAUNCH_EDGE_ENV, CP_LAUNCH_EDGE_SHOW_ENV, CP_STRICT_NEG_WEIGHT_CHECK_ENV),
)


def _is_on(name: str) -> bool:
    return os.environ.get(name, "0") == "1"


def _switch(name: str, value: bool) -> None:
    os.environ[name] = "1" if value else "0"


class HTAEnvOptions:
    """The switches as an object: they are read from the environment at each use, and set there."""

    @classmethod
    def instance(cls) -> HTAEnvOptions:
        """Return an object; all use the same environment."""
        return cls()

    def disable_ns_rounding(self) -> bool:
        """Whether times are not rounded; here they never are, so that the switch changes nothing."""
        return _is_on(HTA_DISABLE_NS_ROUNDING_ENV)

    def set_disable_ns_rounding(self, value: bool) -> None:
        """Switch it."""
        _switch(HTA_DISABLE_NS_ROUNDING_ENV, value)

    def disable_call_graph_depth(self) -> bool:
        """Whether call graphs leave the column `depth` out."""
        return _is_on(HTA_DISABLE_CG_DEPTH_ENV)

    def set_disable_call_graph_depth(self, value: bool) -> None:
        """Switch it."""
        _switch(HTA_DISABLE_CG_DEPTH_ENV, value)

    def critical_path_add_zero_weight_launch_edges(self) -> bool:
        """Whether every kernel stays after its launch when weights of a critical path are changed."""
        return _is_on(CP_LAUNCH_EDGE_ENV)

    def set_critical_path_add_zero_weight_launch_edges(self, value: bool) -> None:
        """Switch it."""
        _switch(CP_LAUNCH_EDGE_ENV, value)

    def critical_path_show_zero_weight_launch_edges(self) -> bool:
        """Whether arrows of such edges are drawn."""
        return _is_on(CP_LAUNCH_EDGE_SHOW_ENV)

    def set_critical_path_show_zero_weight_launch_edges(self, value: bool) -> None:
        """Switch it."""
        _switch(CP_LAUNCH_EDGE_SHOW_ENV, value)

    def critical_path_strict_negative_weight_check(self) -> bool:
        """Whether negative weights are an error; here no edge has one, so that the switch changes nothing."""
        return _is_on(CP_STRICT_NEG_WEIGHT_CHECK_ENV)

    def set_critical_path_strict_negative_weight_check(self, value: bool) -> None:
        """Switch it."""
        _switch(CP_STRICT_NEG_WEIGHT_CHECK_ENV, value)

    def get_options_str(self) -> str:
        """Return all switches as text, one per line."""
        return "\n".join(f"{name}={int(_is_on(name))}" for name in _NAMES)


_OPTIONS = HTAEnvOptions()
disable_ns_rounding = _OPTIONS.disable_ns_rounding
disable_call_graph_depth = _OPTIONS.disable_call_graph_depth
critical_path_add_zero_weight_launch_edges = _OPTIONS.critical_path_add_zero_weight_launch_edges
critical_path_show_zero_weight_launch_edges = _OPTIONS.critical_path_show_zero_weight_launch_edges
critical_path_strict_negative_weight_check = _OPTIONS.critical_path_strict_negative_weight_check
get_options = _OPTIONS.get_options_str
