"""The shop at work: a process that changes the database while it is mirrored.

Every kind of change that a mirror must get right is in it: inserts, updates, deletions, changes of
keys, rows that move between partitions, unchanged values stored out of line, transactions over
several tables, truncation with rows after it in one transaction, and marker rows by which freshness
is measured.
"""

from __future__ import annotations

import multiprocessing
import random
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe

import psycopg

from mirrorlake.demo.server import signals_held
from mirrorlake.demo.shop import Sizes
from mirrorlake.errors import InternalError

BEAT_SECONDS = 0.2
TRUNCATE_SECONDS = 6.0
"""Between truncations; a short demo has its first after a third of its time."""


class Writer:
    """The process. `result` returns how many rows it changed."""

    def __init__(self, url: str, sizes: Sizes, seconds: float, rate: int, seed: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._results, self._sending = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_work, args=(url, sizes, seconds, rate, seed, self._sending), daemon=True
        )

    def start(self) -> None:
        with signals_held(signal.SIGINT):  # Ctrl-C is for us; we end the process
            self._process.start()
        self._sending.close()  # so that the end of the process is the end of the pipe

    @property
    def is_working(self) -> bool:
        return self._process.is_alive()

    def result(self) -> int:
        """Wait for the end; returns the number of rows changed."""
        self._process.join()
        try:
            return int(self._results.recv())
        except EOFError:
            raise InternalError(
                "the writer of the demo failed", where="demo", hint="Its traceback is above."
            ) from None


def _work(url: str, sizes: Sizes, seconds: float, rate: int, seed: int, results: Pipe) -> None:
    with psycopg.connect(url) as connection:
        shop = _Shop(connection, sizes, random.Random(seed))  # noqa: S311  (no secret)
        started = time.monotonic()
        beat = started
        truncation = started + min(TRUNCATE_SECONDS, seconds / 3)
        while (now := time.monotonic()) < started + seconds:
            if now >= beat:
                shop.beat()
                beat += BEAT_SECONDS
            if now >= truncation:
                shop.empty_carts()
                truncation = now + TRUNCATE_SECONDS
            shop.step()
            # Not faster than asked: the machine is shared with what is shown.
            ahead = shop.changed / rate - (time.monotonic() - started)
            if ahead > 0:
                time.sleep(min(ahead, BEAT_SECONDS))
        shop.beat()
    results.send(shop.changed)


class _Shop:
    def __init__(self, connection: psycopg.Connection, sizes: Sizes, random: random.Random) -> None:
        self._sql, self._sizes, self._random = connection, sizes, random
        self._orders = sizes["shop.orders"]
        self._customers = sizes["shop.customers"]
        self._carts = sizes["shop.carts"]
        self._moved = 10_000_000
        self._beats = 0
        self.changed = 0
        self._steps: list[Callable[[], None]] = [
            self._order, self._order, self._order, self._pay, self._pay, self._reprice,
            self._move_product, self._postpone, self._cancel, self._customer, self._count,
            self._cart,
        ]  # fmt: skip

    def step(self) -> None:
        """One transaction."""
        self._random.choice(self._steps)()
        self._sql.commit()

    def beat(self) -> None:
        """A marker row that carries the time at which it was sent."""
        self._beats += 1
        self._run("insert into shop.heartbeat values (%s, clock_timestamp())", self._beats)
        self._sql.commit()

    def empty_carts(self) -> None:
        """Truncation and new rows in one transaction."""
        self._run("truncate shop.carts")
        self._carts += 1
        self._run("insert into shop.carts values (%s, null, '{}', now())", self._carts)
        self._sql.commit()

    def _order(self) -> None:
        """Orders, their items and the stock, in one transaction over three tables."""
        first = self._orders + 1
        self._orders += 10
        self._run(
            "insert into shop.orders select g, current_date, gen_random_uuid(), 'open', g, now() "
            "from generate_series(%s::bigint, %s::bigint) g",
            first,
            self._orders,
        )
        self._run(
            "insert into shop.order_items select g, n, 1 + g %% 100, n, 9.99 "
            "from generate_series(%s::bigint, %s::bigint) g, generate_series(1, 3) n",
            first,
            self._orders,
        )
        self._run(
            "update warehouse.stock set quantity = quantity - 1, counted_at = now() "
            "where place = 'place 0' and product = any(%s)",
            self._some(self._sizes["shop.products"], 10),
        )

    def _pay(self) -> None:
        self._run(
            "update shop.orders set status = 'paid', total = coalesce(total, 0) + 1 "
            "where id = any(%s)",
            self._some(self._orders, 30),
        )

    def _reprice(self) -> None:
        """The description does not change, and is not sent."""
        self._run(
            "update shop.products set price = price + 0.01 where id = any(%s)",
            self._some(self._sizes["shop.products"], 20),
        )

    def _move_product(self) -> None:
        """A new key, with the description unchanged in the same statement."""
        self._moved += 1
        self._run(
            "update shop.products set id = %s where id = %s",
            self._moved,
            self._random.randint(1, self._sizes["shop.products"]),
        )

    def _postpone(self) -> None:
        """Rows that move to another partition."""
        self._run(
            "update shop.orders set ordered_on = ordered_on + 200 where id = any(%s)",
            self._some(self._orders, 5),
        )

    def _cancel(self) -> None:
        chosen = self._some(self._orders, 8)
        self._run('delete from shop.order_items where "order" = any(%s)', chosen)
        self._run("delete from shop.orders where id = any(%s)", chosen)

    def _customer(self) -> None:
        self._run(
            "update shop.customers set tier = 'gold', tags = array_append(tags, 'new'), "
            "preferences = preferences || jsonb_build_object('seen', now()) "
            "where id in (select id from shop.customers offset %s limit 10)",
            self._random.randint(0, max(self._customers - 10, 0)) % 5_000,
        )

    def _count(self) -> None:
        self._run(
            "update warehouse.stock set quantity = quantity + 5, weight = weight * 1.1 "
            "where product = any(%s)",
            self._some(self._sizes["shop.products"], 4),
        )

    def _cart(self) -> None:
        first = self._carts + 1
        self._carts += 10
        self._run(
            "insert into shop.carts select g, gen_random_uuid(), array[g, null, 3], now() "
            "from generate_series(%s::bigint, %s::bigint) g",
            first,
            self._carts,
        )

    def _some(self, most: int, count: int) -> list[int]:
        return [self._random.randint(1, most) for _ in range(count)]

    def _run(self, statement: str, *values: object) -> None:
        found = self._sql.execute(statement, values)
        self.changed += max(found.rowcount, 0)
