# Spack's package. `make recipes` writes it to dist/spack with the version and the checksum of the
# source distribution.
from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyMultiverso(PythonPackage):
    """A parameter server on one machine or a cluster: tables every worker adds to and gets from, at
    memory speed."""

    pypi = "multiverso/multiverso-@VERSION@.tar.gz"

    license("MIT")

    version("@VERSION@", sha256="@SHA256@")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.18:", type="build")
    depends_on("gmake", type="build")
    depends_on("python@3.10:", type=("build", "run"))
    depends_on("py-setuptools@77:", type="build")
    depends_on("py-mpi4py@4.1:4", type=("build", "run"))
    depends_on("py-numpy@1.23:", type=("build", "run"))

    conflicts("platform=darwin", msg="nobody has run it on macOS")
