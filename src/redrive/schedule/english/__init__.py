"""Refresh policies in English: a strict parser and a writer. PURE.

May import: `redrive.schedule`'s rules and schedules, not its policies, which are built from the result. Must never:
guess.

Every policy that is parsed can be written as sentences that mean the same (`write`). Text that is not understood is an
error with its line, its column and the alternatives. No word is ignored: other libraries read "at 6am and 4pm" as 6,
and drop "in Europe/Kyiv" silently.

`tokens` divides a text into lines of words. The parser functions of `clauses`, `recurrences` and `failures`
consume what they understand, word for word, or restore the position; `Notes` has the results, which `read` combines.
Indented lines belong to the header above them.
"""
