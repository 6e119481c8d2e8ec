"""Finds the packages; everything else about the project is in pyproject.toml.

The folder `dashboard/` installs as `distlab_dashboard`: a bare `dashboard` in
site-packages would collide with other projects' one. pyproject.toml can map a
folder only together with a hand-kept list of all packages, hence this file.
"""

from setuptools import find_packages, setup

FOLDERS = {"distlab": "distlab", "distlab_dashboard": "dashboard"}

setup(
    packages=[
        name
        for root, folder in FOLDERS.items()
        for name in (root, *(f"{root}.{inner}" for inner in find_packages(folder)))
    ],
    package_dir=FOLDERS,
)
