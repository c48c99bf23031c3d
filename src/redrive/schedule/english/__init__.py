"""Refresh policies in English: a strict parser and a writer. PURE.

May import: `redrive.schedule`'s rules and schedules, not its policies, which are built from the result. Must never:
guess.

Every policy that is parsed can be written as sentences that mean the same (`write`). Text that is not understood is an
error with its line, its column and the alternatives. No word is ignored: other libraries read "at 6am and 4pm" as 6,
and drop "in Europe/Kyiv" silently.

A text consists of lines (`tokens`). A line has clauses, separated by semicolons, or by a comma before one of a few
words. Each parser function consumes what it understands, word for word, or restores the position (`clauses`,
`recurrences`, `retries`, `endings`). The results are collected in `Notes`, and finally combined and checked (`read`).
Indented lines belong to the header above them.
"""
