"""Finds the rows of a shared table that exceed its bounds: the oldest of the owner with most.

A bound holds for all owners together. Each row has a depth: the bytes, and the number, of its own
and its owner's newer rows. Rows are kept in the order of their depths until the bound is reached.
So an owner with little keeps all rows, whatever others have. `FairEviction` in
`balancer/fleet/shares.py` has the same rule.
"""

from sqlalchemy import ColumnElement, Subquery, func, select


def fairly_ranked(
    id: ColumnElement[str],
    owner: ColumnElement[str],
    *,
    latest: tuple[ColumnElement[object], ...],
    num_bytes: ColumnElement[int],
    more: tuple[ColumnElement[object], ...] = (),
    among: ColumnElement[bool] | None = None,
) -> Subquery:
    """Rows with their `place` and the `total` of bytes up to them, in the order of their depths.

    `latest` orders an owner's rows; `more` are further columns; only rows `among` these count.
    """
    chosen = select(
        id.label("id"),
        num_bytes.label("num_bytes"),
        func.row_number().over(partition_by=owner, order_by=latest).label("depth"),
        func.sum(num_bytes).over(partition_by=owner, order_by=latest).label("byte_depth"),
        func.row_number().over(order_by=latest).label("age"),
        *more,
    )
    deep = (chosen if among is None else chosen.where(among)).subquery()
    others = [deep.c[each.name] for each in more]
    return select(
        deep.c.id,
        func.row_number().over(order_by=(deep.c.depth, deep.c.age)).label("place"),
        func.sum(deep.c.num_bytes).over(order_by=(deep.c.byte_depth, deep.c.age)).label("total"),
        *others,
    ).subquery()
