"""The command line for Kubernetes: the real spark-submit, before an API server that only takes notes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pyspark
import pytest

from penstock.config import load
from penstock.embedded.java import find_java
from penstock.pipeline.compile import load_pipeline
from penstock.pipeline.spark.submission import make_application

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

SHOP = Path(__file__).parents[3] / "examples" / "shop" / "pipeline.yaml"


class ApiServer(ThreadingHTTPServer):
    """Takes every object as a cluster would, and keeps it by its kind."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.created: dict[str, dict[str, Any]] = {}


class _Handler(BaseHTTPRequestHandler):
    server: ApiServer

    def _take(self) -> None:
        given = json.loads(self.rfile.read(int(self.headers["content-length"])))
        given["metadata"] |= {"uid": "1", "resourceVersion": "1"}
        self.server.created[given["kind"]] = given
        answer = json.dumps(given).encode()
        self.send_response(201)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_PATCH = _take

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_the_driver_pod_runs_the_entry_point_with_the_archive(api: ApiServer, tmp_path: Path) -> None:
    pipeline = replace(load_pipeline(SHOP), checkpoint_text="s3a://bucket/checkpoints")
    made = make_application(pipeline, load(start=tmp_path, environ={}), tmp_path / "job", libraries=False)
    (tmp_path / "upload").mkdir()
    settings = {
        "spark.kubernetes.container.image": "registry.example/spark:4.2.0",
        "spark.kubernetes.file.upload.path": f"file://{tmp_path}/upload",
        "spark.kubernetes.submission.waitAppCompletion": "false",
    }
    master = f"k8s://http://127.0.0.1:{api.server_port}"
    line = made.submit(master, cluster_mode=True, settings=settings)
    home = Path(pyspark.__file__).parent
    words = shlex.split(line.replace("\\\n", " "))
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "HOME": str(tmp_path),
    }
    command = ["bash", str(home / "bin" / "spark-submit"), *words[1:], "--once"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    (driver,) = api.created["Pod"]["spec"]["containers"]
    assert driver["image"] == "registry.example/spark:4.2.0"
    assert driver["args"][-2].endswith("/main.py") and driver["args"][-1] == "--once"
    assert {"name": "PYSPARK_PYTHON", "value": f"python{made.python}"} in driver["env"]
    properties = api.created["ConfigMap"]["data"]["spark.properties"].replace("\\", "")
    (archive,) = [text for text in properties.splitlines() if text.startswith("spark.archives=")]
    place, _, name = archive.partition("=file:")[2].partition("#")
    assert Path(place).read_bytes() == (made.folder / "application.tar.gz").read_bytes()
    assert f"spark.executorEnv.PYTHONPATH=./{name}/python" in properties
