"""Every test run builds its data in a cache of its own."""

import os

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    os.environ["MULTIMODEL_CACHE"] = str(folder)
    return folder
