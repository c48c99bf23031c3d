"""Refresh policies in English: a strict parser and a writer. PURE.

May import: `redrive.schedule`'s rules and schedules, not its policies, which are built from the result. Must never:
guess.

Every policy that is parsed can be written as sentences that mean the same (`write`). Text that is not understood is an
error with its line, its column and the alternatives. No word is ignored: other libraries read "at 6am and 4pm" as 6,
and drop "in Europe/Kyiv" silently.

`tokens` divides a text into lines of words. A line has sentences, and a sentence has clauses, in any order (`read`,
`clauses`). Each clause takes all of its words: `schedules` and `recurrences` those about when (`frequencies`, `days`,
`times`, `places`), `retries`, `failures`, `delays`, `endings` and `actions` those about failures. What they give is
kept in `notes` with the place of its words, each piece once: a second one is an error that names both places. `meaning`
turns the phrases of a recurrence into rules, and `whole` all pieces into a policy. Indented lines belong to the header
above them.
"""
