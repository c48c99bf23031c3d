"""Drawings of machines for files."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from redrive.app.machines.drawing import as_svg
from tests.stores.machines import payment


def _labels(drawing: str) -> dict[str, float]:
    root = ET.fromstring(drawing)  # noqa: S314 - our own
    texts = [each for each in root.iter() if each.tag.endswith("text") and each.get("class") == "label"]
    return {str(each.text): float(each.get("y", "0")) for each in texts}


def test_labels_of_one_state_stand_below_each_other():
    """The labels of two transitions that leave a state downwards are at least a line apart."""
    found = _labels(as_svg(payment(), {}))

    assert 14 <= abs(found["Expired after 3d"] - found["Completed"])
