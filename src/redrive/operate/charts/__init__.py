"""Pictures as SVG, drawn by the server. PURE.

Each picture shows the same facts as a table beside it, has a sentence for screen readers, and takes its colours from
classes, because the pages allow no styles inside of elements.

A chart over time is as wide as its card: places on the x axis are percentages or parts of a stretched picture, and
heights are pixels, so that texts and strokes keep their size at each width. `Axis` has the places of the x axis, and
`plots` draws on it: `columns`, `area`, `lines`, and `strip`. `sparks` has the small ones for rows and key figures.
"""
