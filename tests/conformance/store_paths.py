"""Paths that no store takes, whatever the method."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mirrorlake.storage.store import Store, UnsafePath

UNSAFE = ["..", "a/../b", ".", "a/./b", "/a", "a/", "a//b", "a\\b", "a\0b"]

METHODS: dict[str, Callable[[Store, str], object]] = {
    "list": lambda store, path: store.list(path),
    "read": lambda store, path: store.read(path),
    "open": lambda store, path: store.open(path),
    "stage": lambda store, path: store.stage(path).__enter__(),
    "publish": lambda store, path: store.publish("staged", path),
    "publish from": lambda store, path: store.publish(path, "final"),
    "make_folder": lambda store, path: store.make_folder(path),
    "flush": lambda store, path: store.flush(path),
    "create": lambda store, path: store.create(path, b"x"),
    "replace": lambda store, path: store.replace(path, b"x"),
    "move": lambda store, path: store.move(path, "final"),
    "move to": lambda store, path: store.move("staged", path),
    "delete": lambda store, path: store.delete(path),
    "delete_folder": lambda store, path: store.delete_folder(path),
    "location": lambda store, path: store.location(path),
}


class PathContract:
    """Paths that no store takes."""

    @pytest.mark.parametrize("path", UNSAFE)
    @pytest.mark.parametrize("method", METHODS)
    def test_an_unsafe_path_is_refused(self, store: Store, method: str, path: str) -> None:
        store.create("staged", b"x")
        with pytest.raises(UnsafePath):
            METHODS[method](store, path)

    @pytest.mark.parametrize("method", sorted(set(METHODS) - {"list"}))
    def test_an_empty_path_is_refused(self, store: Store, method: str) -> None:
        store.create("staged", b"x")
        with pytest.raises(UnsafePath):
            METHODS[method](store, "")
