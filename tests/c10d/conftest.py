"""Rank processes that a module's tests share."""

import pytest
from ranks import KeptRanks


@pytest.fixture(scope="module")
def one():
    with KeptRanks(1) as ranks:
        yield ranks


@pytest.fixture(scope="module")
def two():
    with KeptRanks(2) as ranks:
        yield ranks


@pytest.fixture(scope="module")
def three():
    with KeptRanks(3) as ranks:
        yield ranks


@pytest.fixture(scope="module")
def four():
    with KeptRanks(4) as ranks:
        yield ranks
