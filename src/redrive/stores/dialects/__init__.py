"""What differs between databases: the statements, and how values look in rows.

A dialect is a folder: ``queries/*.sql`` (one statement a file, named like the query), ``migrations/*.sql`` (in order,
``pre`` or ``post`` the new code), ``schema.sql`` (for readers, proved equal to the sum of the migrations), and
``values.py`` (encode parameters, decode rows).
"""
