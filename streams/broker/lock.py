"""Maintainer's tool that writes `jars.lock` with Maven's help; users never run it, they fetch what the lock says (`streams.broker.jars`)."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from streams.broker.jars import KAFKA_VERSION, LOCK_FILE, Jar, format_lock

_LOG4J_VERSION = "2.24.3"
"""The one that Kafka 4.1.0's own classpath resolves; a binding of another release line fails at the first log call."""

_ROOTS = (f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}", f"org.apache.logging.log4j:log4j-slf4j-impl:{_LOG4J_VERSION}")

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>lock</groupId><artifactId>lock</artifactId><version>1</version><dependencies>{dependencies}</dependencies></project>"""


def main() -> int:
    """Resolve the roots with `mvn` and rewrite the lock file next to this module; exit code as a command's."""
    with tempfile.TemporaryDirectory() as scratch:
        jars = resolve_jars(Path(scratch))
    LOCK_FILE.write_text(format_lock(jars), encoding="ascii")
    sys.stdout.write(f"{LOCK_FILE}: {len(jars)} jars, {sum(jar.size for jar in jars)} bytes\n")
    return 0


def resolve_jars(scratch: Path) -> list[Jar]:
    """Every jar of the roots' runtime classpath, hashed; `scratch` is an empty directory.

    Raises:
        subprocess.CalledProcessError: Maven failed; its own text is on standard error.
    """
    (scratch / "pom.xml").write_text(_POM.format(dependencies="".join(map(_as_dependency, _ROOTS))), encoding="utf-8")
    command = ["mvn", "-B", "-q", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=jars", "-Dmdep.useRepositoryLayout=true"]
    subprocess.run(command, cwd=scratch, check=True, timeout=600)
    root = scratch / "jars"
    return sorted((_hash_jar(path, root) for path in root.rglob("*.jar")), key=lambda jar: jar.coordinate)


def _as_dependency(coordinate: str) -> str:
    group, artifact, version = coordinate.split(":")
    return f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"


def _hash_jar(path: Path, root: Path) -> Jar:
    *group, artifact, version, _name = path.relative_to(root).parts
    content = path.read_bytes()
    jar = Jar(".".join(group), artifact, version, len(content), hashlib.sha256(content).hexdigest())
    if jar.file_name != path.name:
        msg = f"{path.name}: a jar with a classifier, which the lock's format cannot say"
        raise ValueError(msg)
    return jar


if __name__ == "__main__":
    sys.exit(main())
