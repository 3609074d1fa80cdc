"""Finds rows of a shared table beyond its bounds: the oldest rows of the owner with the most.

A bound applies to all owners together. Each row has two depths: the bytes and the number of this
row and of its owner's newer rows. Rows are kept in the order of their depths until the bound is
reached. An owner with few rows therefore keeps all of them, regardless of other owners.
`FairEviction` in `balancer/fleet/shares.py` has the same rule.
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
    """Return rows with their `place` by depth, and the `total` of bytes up to each row.

    `latest` orders the rows of an owner. `more` are further columns. Only rows that match `among`
    count.
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
