"""What the files in deploy/ promise, whatever runs them."""

from pathlib import Path

import yaml  # type: ignore[import-untyped]

DEPLOY = Path(__file__).parents[1] / "deploy"


def test_a_nodes_pod_sees_no_other_nodes_private_key() -> None:
    """With another's key it could vote in its place."""
    parts = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    (node,) = [part for part in parts if part["metadata"]["name"] == "node" and part["kind"] == "StatefulSet"]
    (container,) = node["spec"]["template"]["spec"]["containers"]
    seen = [mount.get("subPath") or mount.get("subPathExpr") for mount in container["volumeMounts"]]
    assert sorted(seen) == ["$(POD_NAME)", "ca.crt", "signing.key.pub"]
    (name,) = container["env"]
    assert name["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
