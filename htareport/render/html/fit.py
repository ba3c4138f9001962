"""Decides how much of a report's tables and charts goes on the page, so that the page stays within its size limit.

Where they do not fit, the page has less, in this order: rows as markup (the data keep all), rows as data (of the
largest tables), the length of names, charts of later sections, tables of later sections. What is left out is counted
where it would have been.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from htareport.errors import OutputError
from htareport.render.html.tables import MAX_NAME, Source

_MIN_LARGE_CHART = 200_000  # Bytes of a picture that is always left out.
_MAX_TRIES = 6  # To reach a size by leaving out more.
_SAFETY = 0.97
_BLOCK_SIZE, _TABLE_SIZE = 90, 1500  # Bytes of the element around a table's data; of a table of little content.


@dataclass(slots=True)
class Plan:
    """How much of the tables and charts goes on the page."""

    markup_rows: int = 50  # Rows as markup.
    max_name: int = MAX_NAME  # Characters of a name.
    has_definitions: bool = True  # Whether headings hold their columns' definitions (the list at the end has them too).
    rows: dict[str, int] = field(default_factory=dict[str, int])  # As data, of the tables that do not have all as data.
    no_charts: set[str] = field(default_factory=set[str])
    no_tables: set[str] = field(default_factory=set[str])


# Rows as markup of the plans that keep all rows as data; then those that do not: rows as markup, length of names, and
# the bytes of data that should fit.
_ROWS_WITH_ALL_DATA = (50, 30, 20, 10)
_PLANS_WITH_LESS_DATA = (
    (20, MAX_NAME, 150_000), (10, MAX_NAME, 150_000), (10, 2048, 150_000), (5, 512, 150_000), (5, 160, 80_000),
)  # fmt: skip

Render = Callable[[Plan], bytes]
MarkupSize = Callable[[Plan], int]


class Fitter:
    """Finds the plan that leaves out as little as possible."""

    def __init__(
        self, limit: int, sources: list[Source], charts: dict[str, int], render: Render, min_markup_size: MarkupSize
    ) -> None:
        """Take the limit in bytes, the tables, the sizes of charts in the order of the page, and what renders a plan.

        `min_markup_size` returns a lower bound of the bytes of a plan's tables, and is cheaper than rendering.
        """
        self.limit, self.sources, self.charts = limit, sources, charts
        self.render, self.min_markup_size = render, min_markup_size
        self.large_charts = {name for name, size in charts.items() if size > _MIN_LARGE_CHART}

    def page(self) -> bytes:
        """Return the page. OutputError where not even its words fit."""
        # First plans with all rows as data, then with fewer; then charts and at last tables are left out, as many as
        # there are bytes too many. A plan is rendered only if a lower bound of its size fits.
        for markup_rows in _ROWS_WITH_ALL_DATA:
            plan = Plan(markup_rows, no_charts=set(self.large_charts))
            if self._could_fit(plan) and len(page := self.render(plan)) <= self.limit:
                return page
        for markup_rows, max_name, min_data in _PLANS_WITH_LESS_DATA:
            plan = Plan(markup_rows, max_name, no_charts=set(self.large_charts))
            if self._could_fit(plan) and (fitted_page := self._with_rows(plan, min_data)):
                return fitted_page
        markup_rows, max_name, min_data = _PLANS_WITH_LESS_DATA[-1]
        plan = Plan(markup_rows, max_name, has_definitions=False, no_charts=set(self.large_charts))
        table_sizes = {source.id: _TABLE_SIZE for source in self.sources}
        for left_out, sizes in ((plan.no_charts, self.charts), (plan.no_tables, table_sizes)):
            for _ in range(_MAX_TRIES):
                excess = self._size_without_data(plan) + self._required_data(plan, min_data // 2) - self.limit
                if excess <= 0 and (fitted_page := self._with_rows(plan, min_data // 2)):
                    return fitted_page
                if not _leave_out_last(left_out, sizes, max(excess, 1000)):
                    break
        plan.no_charts, plan.no_tables = set(self.charts), {source.id for source in self.sources}
        if len(page := self.render(plan)) <= self.limit:
            return page
        raise OutputError(f"the page does not fit into {self.limit:,} bytes, even without its tables and charts")

    def _could_fit(self, plan: Plan) -> bool:
        charts = sum(size for name, size in self.charts.items() if name not in plan.no_charts)
        return self.min_markup_size(plan) + charts <= self.limit

    def _with_rows(self, plan: Plan, min_data: int) -> bytes | None:
        """Return the page with as many rows as data as fit; None where not even `min_data` bytes of them do."""
        data_budget = self.limit - self._size_without_data(plan)
        if data_budget < self._required_data(plan, min_data):
            return None
        for _ in range(_MAX_TRIES):
            self._share_bytes(plan, data_budget)
            excess = len(page := self.render(plan)) - self.limit
            if excess <= 0:
                return page
            data_budget -= excess + 1000
        return None

    def _required_data(self, plan: Plan, min_data: int) -> int:
        return min(min_data, sum(self._data_sizes(plan).values()))

    def _size_without_data(self, plan: Plan) -> int:
        plan.rows = {source.id: 0 for source in self.sources}
        return len(self.render(plan))

    def _data_sizes(self, plan: Plan) -> dict[str, int]:
        """Return the bytes of each table's data when it has all."""
        shown = (source for source in self.sources if source.id not in plan.no_tables)
        return {source.id: len(source.packed(source.max_packed, plan.max_name)) + _BLOCK_SIZE for source in shown}

    def _share_bytes(self, plan: Plan, budget: int) -> None:
        """Share a budget in bytes: tables that need no more than an equal share have all, the others an equal share."""
        sizes = self._data_sizes(plan)
        share_limit, bytes_left, tables_left = 0.0, float(budget), len(sizes)
        for size in sorted(sizes.values()):
            share_limit = bytes_left / tables_left
            if size > share_limit:
                break
            bytes_left, tables_left, share_limit = bytes_left - size, tables_left - 1, float("inf")
        for source in self.sources:
            size = sizes.get(source.id, 0)
            share = 1.0 if size <= share_limit else _SAFETY * share_limit / size
            plan.rows[source.id] = int(source.max_packed * share)


def _leave_out_last(left_out: set[str], sizes: dict[str, int], excess: int) -> bool:
    """Add the last charts or tables to `left_out`, with so many bytes; return whether there were any."""
    shown = [name for name in sizes if name not in left_out]
    for name in reversed(shown):
        if excess <= 0:
            break
        left_out.add(name)
        excess -= sizes[name]
    return bool(shown)
