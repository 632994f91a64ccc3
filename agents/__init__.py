"""Decides what each event is answered with; `streams` carries, `schemas` is what crosses."""

import sys

sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
# `import openvino` would load that package, which tells its makers of each use; None refuses the import, and openvino then has a stand-in. A worker
# and its engines call nobody they were not told to, and this runs before any module of ours that needs openvino.
