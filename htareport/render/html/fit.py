"""What of a report stands on the page, so that it is never larger than its limit.

The page is put together from pieces whose sizes are known. Where they do not fit, the page has less, in this order:
rows as markup (the data keep all), rows as data (of the largest tables), the length of names, charts of later
sections, tables of later sections. Everything that is left out is counted where it would have been.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from htareport.errors import OutputError
from htareport.render.html.tables import LONGEST_NAME, Source

_LARGE_CHART = 200_000  # Bytes of one picture that is rather left out.
_TRIES = 6  # To reach a size by leaving out more.
_SPARE = 0.97


@dataclass(slots=True)
class Plan:
    """What of the tables and charts stands on the page."""

    static: int = 50  # Rows as markup.
    longest: int = LONGEST_NAME  # Characters of a name.
    told: bool = True  # Whether headings hold their columns' definitions (the list at the end has them too).
    rows: dict[str, int] = field(default_factory=dict[str, int])  # As data, of the tables that do not have all.
    no_charts: set[str] = field(default_factory=set[str])
    no_tables: set[str] = field(default_factory=set[str])


# Rows as markup and length of names: those that keep all rows as data; then those that do not, and how many bytes of
# data there should be room for.
_WHOLE = (50, 30, 20, 10)
_PARTS = (
    (20, LONGEST_NAME, 150_000), (10, LONGEST_NAME, 150_000), (10, 2048, 150_000), (5, 512, 150_000), (5, 160, 80_000),
)  # fmt: skip

Render = Callable[[Plan], bytes]
Weigh = Callable[[Plan], int]


class Fitter:
    """Finds the plan that leaves the least out."""

    def __init__(self, limit: int, sources: list[Source], charts: dict[str, int], render: Render, weigh: Weigh) -> None:
        """Take the limit in bytes, the tables, the charts' sizes in the order of the page, and how to make it.

        `weigh` gives a lower bound of a plan's markup of tables, cheaper than making it.
        """
        self.limit, self.sources, self.charts = limit, sources, charts
        self.render, self.weigh = render, weigh
        self.large = {name for name, size in charts.items() if size > _LARGE_CHART}

    def page(self) -> bytes:
        """Return the page. OutputError where not even its words fit."""
        for static in _WHOLE:
            plan = Plan(static, no_charts=set(self.large))
            if self._could_fit(plan) and len(page := self.render(plan)) <= self.limit:
                return page
        for static, longest, least in _PARTS:
            plan = Plan(static, longest, no_charts=set(self.large))
            if self._could_fit(plan) and (found := self._with_rows(plan, least)):
                return found
        static, longest, least = _PARTS[-1]
        plan = Plan(static, longest, told=False, no_charts=set(self.large))
        for drop in (self._drop_charts, self._drop_tables):
            for _ in range(_TRIES):
                excess = self._size_without_data(plan) + self._least(plan, least // 2) - self.limit
                if excess <= 0 and (found := self._with_rows(plan, least // 2)):
                    return found
                if not drop(plan, max(excess, 1000)):
                    break
        plan.no_charts, plan.no_tables = set(self.charts), {source.id for source in self.sources}
        if len(page := self.render(plan)) <= self.limit:
            return page
        raise OutputError(f"the page does not fit into {self.limit:,} bytes, even without its tables and charts")

    def _could_fit(self, plan: Plan) -> bool:
        charts = sum(size for name, size in self.charts.items() if name not in plan.no_charts)
        return self.weigh(plan) + charts <= self.limit

    def _with_rows(self, plan: Plan, least: int) -> bytes | None:
        """Return the page with as many rows as data as fit; None where there is not even room for `least` bytes."""
        room = self.limit - self._size_without_data(plan)
        if room < self._least(plan, least):
            return None
        for _ in range(_TRIES):
            self._share(plan, room)
            excess = len(page := self.render(plan)) - self.limit
            if excess <= 0:
                return page
            room -= excess + 1000
        return None

    def _least(self, plan: Plan, least: int) -> int:
        return min(least, sum(self._sizes(plan).values()))

    def _size_without_data(self, plan: Plan) -> int:
        plan.rows = {source.id: 0 for source in self.sources}
        return len(self.render(plan))

    def _sizes(self, plan: Plan) -> dict[str, int]:
        """Return the bytes of each table's data when it has all."""
        shown = (source for source in self.sources if source.id not in plan.no_tables)
        return {source.id: len(source.packed(source.most_packed, plan.longest)) + _BLOCK for source in shown}

    def _share(self, plan: Plan, room: int) -> None:
        """Share the room: tables that need no more than their part have all, and the others the same each."""
        sizes = self._sizes(plan)
        part, left, count = 0.0, float(room), len(sizes)
        for size in sorted(sizes.values()):
            part = left / count
            if size > part:
                break
            left, count, part = left - size, count - 1, float("inf")
        for source in self.sources:
            size = sizes.get(source.id, 0)
            share = 1.0 if size <= part else _SPARE * part / size
            plan.rows[source.id] = int(source.most_packed * share)

    def _drop_charts(self, plan: Plan, excess: int) -> bool:
        """Leave out charts, the last first, that have so many bytes; False if there is none left."""
        return _drop(plan.no_charts, self.charts, excess)

    def _drop_tables(self, plan: Plan, excess: int) -> bool:
        return _drop(plan.no_tables, {source.id: _TABLE for source in self.sources}, excess)


_BLOCK, _TABLE = 90, 1500  # Bytes of the element around a table's data; of a table of little content.


def _drop(dropped: set[str], sizes: dict[str, int], excess: int) -> bool:
    kept = [name for name in sizes if name not in dropped]
    for name in reversed(kept):
        if excess <= 0:
            break
        dropped.add(name)
        excess -= sizes[name]
    return bool(kept)
