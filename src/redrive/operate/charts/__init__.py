"""Pictures as SVG, drawn by the server. PURE.

Each picture shows the same facts as a table beside it, has a sentence for screen readers, and takes its colours from
classes, because the pages allow no styles inside of elements.
"""
