"""Refresh policies in English, read strictly and written back.

Answers: what does ``Refresh BigTable twice per day at 6 AM and 4 PM`` mean? May import: `redrive.schedule`'s rules and
schedules, not its policies, which are made of what was read. Must never: guess.

A person who types a policy sees what was understood: whatever is read can be written as sentences again, which mean
the same (`write`), and whatever is not understood is an error with its line, its column, and what could stand there.
Nothing is passed over: the libraries that were tried take "at 6am and 4pm" for 6, and drop "in Europe/Kyiv" without a
word.

A text is lines (`tokens`). A line has clauses, with semicolons between them, or with a comma before one of a few
words. Clauses are read by functions that take what they understand, word for word, and give the place back if it was
something else (`clauses`, `recurrences`, `retries`, `endings`): what they hear goes into `Notes`, and at the end that
is put together and checked as a whole (`read`). Lines that stand deeper belong to the header above them.
"""
