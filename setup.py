"""Finds the packages; everything else about the project is in pyproject.toml.

The folder `dashboard/` installs as `distlab_dashboard`: a bare `dashboard` in
site-packages would collide with other projects' one. pyproject.toml can map a
folder only together with a hand-kept list of all packages, hence this file.
"""

from setuptools import find_namespace_packages, setup

FOLDERS = {"distlab": "distlab", "distlab_dashboard": "dashboard"}


def inside(folder: str) -> list[str]:
    """Returns all folders in a package, those with scripts and styles alone too."""
    return find_namespace_packages(folder, exclude=["*__pycache__*"])


setup(
    packages=[
        name
        for root, folder in FOLDERS.items()
        for name in (root, *(f"{root}.{inner}" for inner in inside(folder)))
    ],
    package_dir=FOLDERS,
)
