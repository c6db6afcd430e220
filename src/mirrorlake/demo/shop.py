"""The shop: seven related tables with what real databases have, and rows to fill them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

SCHEMA = """
create schema shop;
create schema warehouse;
create type shop.tier as enum ('basic', 'silver', 'gold');
create type shop.status as enum ('open', 'paid', 'shipped', 'returned');

create table shop.customers (
    id uuid primary key,
    name text not null,
    tier shop.tier not null,
    tags text[],
    preferences jsonb,
    joined_at timestamptz not null
);
create table shop.products (
    id bigint primary key,
    title text not null,
    price numeric(12, 2) not null,
    description text,
    attributes jsonb
);
-- Stored out of line and uncompressed: an update that leaves it alone does not send it again.
alter table shop.products alter column description set storage external;

create table shop.orders (
    id bigint,
    ordered_on date,
    customer uuid not null,
    status shop.status not null,
    total numeric(14, 2),
    placed_at timestamptz not null,
    primary key (id, ordered_on)
) partition by range (ordered_on);
create table shop.orders_2024 partition of shop.orders
    for values from ('2024-01-01') to ('2025-01-01');
create table shop.orders_2025 partition of shop.orders
    for values from ('2025-01-01') to ('2026-01-01');
create table shop.orders_later partition of shop.orders default;

create table shop.order_items (
    "order" bigint,
    line smallint,
    product bigint not null,
    quantity integer not null,
    price numeric(12, 2) not null,
    primary key ("order", line)
);
create table shop.carts (
    id bigint primary key,
    customer uuid,
    products bigint[],
    touched_at timestamptz
);
create table warehouse.stock (
    place text,
    product bigint,
    quantity integer not null,
    weight double precision,
    counted_at timestamptz not null,
    primary key (place, product)
);
create table shop.heartbeat (
    id bigint primary key,
    sent_at timestamptz not null
);
"""

_ID = "('00000000-0000-4000-8000-' || lpad(to_hex(g), 12, '0'))::uuid"

_FILL: Mapping[str, str] = {
    "shop.customers": f"""
        select {_ID}, 'Customer ' || g,
               (array['basic', 'silver', 'gold'])[1 + g % 3]::shop.tier,
               case when g % 7 = 0 then null else array['tag ' || g % 10, 'é"\\', null] end,
               jsonb_build_object('mail', g % 2 = 0, 'language', 'l' || g % 5, 'score', g * 1.5),
               timestamptz '2020-01-01' + g * interval '7 minutes'""",
    "shop.products": """
        select g, 'Product ' || g, round((g % 10000)::numeric / 7, 2),
               (select string_agg(md5(g::text || n), ' ') from generate_series(1, 75) n),
               case when g % 4 = 0 then null else jsonb_build_object('color', g % 9) end""",
    "shop.orders": """
        select g, date '2024-01-01' + (g % 900)::int,
               ('00000000-0000-4000-8000-' || lpad(to_hex(1 + g % {customers}), 12, '0'))::uuid,
               (array['open', 'paid', 'shipped', 'returned'])[1 + g % 4]::shop.status,
               case when g % 11 = 0 then null else round((g % 100000)::numeric / 3, 2) end,
               timestamptz '2024-01-01' + g * interval '1 minute'""",
    "shop.order_items": """
        select 1 + (g - 1) / 3, ((g - 1) % 3 + 1)::smallint, 1 + g % {products},
               (1 + g % 5)::int, round((g % 9000)::numeric / 7, 2)""",
    "shop.carts": f"""
        select g, {_ID}, array[g % 10, g % 77], now()""",
    "warehouse.stock": """
        select 'place ' || (g - 1) / {products}, 1 + (g - 1) % {products}, (g % 500)::int,
               case when g % 13 = 0 then 'NaN'::float8 else g / 3.0 end, now()""",
}

_SHARES: Mapping[str, float] = {
    "shop.customers": 0.10,
    "shop.products": 0.01,
    "shop.orders": 0.20,
    "shop.order_items": 0.60,
    "shop.carts": 0.01,
    "warehouse.stock": 0.08,
}
HEARTBEAT = "shop.heartbeat"
TABLES = (*_SHARES, HEARTBEAT)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rows per table."""

    rows: Mapping[str, int]

    @classmethod
    def of(cls, total: int) -> Sizes:
        return cls({table: max(int(total * share), 10) for table, share in _SHARES.items()})

    def __getitem__(self, table: str) -> int:
        return self.rows[table]


def fill(sizes: Sizes) -> Iterator[tuple[str, str]]:
    """For each table its name and the statement that fills it."""
    numbers = {name.split(".")[1]: count for name, count in sizes.rows.items()}
    for table, query in _FILL.items():
        rows = query.format(**numbers) if "{customers}" in query or "{products}" in query else query
        yield table, f"insert into {table} {rows} from generate_series(1, {sizes[table]}) g"
