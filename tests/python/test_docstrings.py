"""Examples in docstrings run and print what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import headpond

MODULES = [
    module.name
    for module in pkgutil.walk_packages(headpond.__path__, "headpond.")
    if "_core" not in module.name and "__main__" not in module.name
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
