"""Drawings of machines for files and for pages."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from redrive.app.machines.drawing import as_element, as_svg
from tests.stores.machines import payment


def _labels(drawing: str) -> dict[str, float]:
    root = ET.fromstring(drawing)  # noqa: S314 - our own
    texts = [each for each in root.iter() if each.tag.endswith("text") and each.get("class") == "label"]
    return {str(each.text): float(each.get("y", "0")) for each in texts}


def test_labels_of_one_state_stand_below_each_other():
    """The labels of two transitions that leave a state downwards are at least a line apart."""
    found = _labels(as_svg(payment(), {}))

    assert 14 <= abs(found["Expired after 3d"] - found["Completed"])


def test_pages_get_an_element_without_styles():
    """The element has the transitions as a sentence and capped numbers as texts, and leaves colours to the page."""
    element = as_element(payment(), {"created": "10,000+"})

    assert "<style" not in element
    assert "<style" in as_svg(payment(), {})
    assert "created (10,000+)</text>" in element
    assert "<desc>start to created on Created; " in element
