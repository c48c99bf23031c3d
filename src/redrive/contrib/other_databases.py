"""The meaning of the errors of SQLite, MySQL and MariaDB, as SQLSTATEs of `redrive.contrib.sqlstate`.

Their drivers raise one class, ``OperationalError``, for syntax errors, locks and lost connections alike; the number of
an error distinguishes them. A number that is in no table is an error that would come again.

Sources: https://sqlite.org/rescode.html; the MySQL 8.4 Error Message Reference; the MariaDB Error Code Reference.
"""

from __future__ import annotations

from types import MappingProxyType

from redrive.errors.foreign import attribute

__all__ = ["GENERAL", "MYSQL", "SQLITE", "code_of"]

#: The SQLSTATE of an error without a meaning of its own.
GENERAL = "HY000"

_DEADLOCK, _LOCKED, _CANCELED, _SERIALIZATION = "40P01", "55P03", "57014", "40001"
_FULL, _MEMORY, _TOO_MANY = "53100", "53200", "53300"
_UNIQUE, _FOREIGN_KEY, _NOT_NULL, _CHECK = "23505", "23503", "23502", "23514"
_UNREACHABLE, _LOST, _SHUTDOWN, _IDLE, _READ_ONLY = "08001", "08006", "57P01", "57P05", "25006"
_ACCESS, _NO_DATABASE, _SYNTAX, _NO_COLUMN, _NO_TABLE = "28000", "3D000", "42601", "42703", "42P01"

#: The codes of SQLite's results: primary ones below 256, and extended ones, which come first.
SQLITE = MappingProxyType({
    # SQLITE_BUSY_SNAPSHOT: the rows that it has read were changed.
    517: _SERIALIZATION,
    # SQLITE_BUSY, SQLITE_LOCKED, SQLITE_PROTOCOL
    5: _LOCKED, 6: _LOCKED, 15: _LOCKED,
    # SQLITE_NOMEM, SQLITE_INTERRUPT, SQLITE_FULL
    7: _MEMORY, 9: _CANCELED, 13: _FULL,
    # SQLITE_CONSTRAINT_UNIQUE, _PRIMARYKEY, _ROWID, _FOREIGNKEY, _NOTNULL, _CHECK
    2067: _UNIQUE, 1555: _UNIQUE, 2579: _UNIQUE, 787: _FOREIGN_KEY, 1299: _NOT_NULL, 275: _CHECK,
    # SQLITE_CONSTRAINT
    19: "23000",
})  # fmt: skip

#: The numbers of MySQL's and MariaDB's errors, of the server and (from 2000) of the client library.
MYSQL = MappingProxyType({
    # ER_LOCK_DEADLOCK; ER_LOCK_WAIT_TIMEOUT, ER_LOCK_NOWAIT
    1213: _DEADLOCK, 1205: _LOCKED, 3572: _LOCKED,
    # ER_CHECKREAD, ER_TRANSACTION_ROLLBACK_DURING_COMMIT: a conflict with another transaction
    1020: _SERIALIZATION, 3101: _SERIALIZATION,
    # ER_QUERY_INTERRUPTED and ER_QUERY_TIMEOUT, and ER_STATEMENT_TIMEOUT of MariaDB
    1317: _CANCELED, 1969: _CANCELED, 3024: _CANCELED,
    # ER_DISK_FULL, ER_RECORD_FILE_FULL; then ER_OUTOFMEMORY, ER_OUT_OF_SORTMEMORY, ER_OUT_OF_RESOURCES and
    # ER_LOCK_TABLE_FULL
    1021: _FULL, 1114: _FULL, 1037: _MEMORY, 1038: _MEMORY, 1041: _MEMORY, 1206: _MEMORY,
    # ER_CON_COUNT_ERROR, ER_TOO_MANY_USER_CONNECTIONS and ER_USER_LIMIT_REACHED
    1040: _TOO_MANY, 1203: _TOO_MANY, 1226: _TOO_MANY,
    # ER_SERVER_SHUTDOWN, ER_CONNECTION_KILLED of MariaDB, and ER_CLIENT_INTERACTION_TIMEOUT
    1053: _SHUTDOWN, 1927: _SHUTDOWN, 4031: _IDLE,
    # ER_NET_READ_ERROR, ER_NET_READ_INTERRUPTED, ER_NET_ERROR_ON_WRITE and ER_NET_WRITE_INTERRUPTED
    1158: _LOST, 1159: _LOST, 1160: _LOST, 1161: _LOST,
    # CR_CONNECTION_ERROR, CR_CONN_HOST_ERROR and CR_UNKNOWN_HOST
    2002: _UNREACHABLE, 2003: _UNREACHABLE, 2005: _UNREACHABLE,
    # CR_SERVER_GONE_ERROR, CR_SERVER_LOST and CR_SERVER_LOST_EXTENDED
    2006: _LOST, 2013: _LOST, 2055: _LOST,
    # ER_READ_ONLY_MODE: a primary that has become a replica
    1836: _READ_ONLY,
    # ER_DBACCESS_DENIED_ERROR, ER_ACCESS_DENIED_ERROR, ER_ACCESS_DENIED_NO_PASSWORD_ERROR; ER_BAD_DB_ERROR
    1044: _ACCESS, 1045: _ACCESS, 1698: _ACCESS, 1049: _NO_DATABASE,
    # ER_PARSE_ERROR, ER_BAD_FIELD_ERROR and ER_NO_SUCH_TABLE
    1064: _SYNTAX, 1054: _NO_COLUMN, 1146: _NO_TABLE,
    # ER_DUP_ENTRY; ER_NO_REFERENCED_ROW, ER_ROW_IS_REFERENCED and their second forms; ER_BAD_NULL_ERROR
    1062: _UNIQUE, 1216: _FOREIGN_KEY, 1217: _FOREIGN_KEY, 1451: _FOREIGN_KEY, 1452: _FOREIGN_KEY, 1048: _NOT_NULL,
    # ER_CHECK_CONSTRAINT_VIOLATED, and ER_CONSTRAINT_FAILED of MariaDB
    3819: _CHECK, 4025: _CHECK,
})  # fmt: skip

_SQLITE_DRIVERS = frozenset({"sqlite3", "aiosqlite", "pysqlcipher3", "sqlcipher3"})
_MYSQL_DRIVERS = frozenset({"pymysql", "MySQLdb", "mysql", "asyncmy", "aiomysql", "mariadb", "cymysql"})
# The option with which a server refuses to write, in the text of ER_OPTION_PREVENTS_STATEMENT.
_OPTION, _OPTIONS = 1290, "read-only"


def code_of(error: BaseException) -> str | None:
    """Return the SQLSTATE of an error of a driver of SQLite, MySQL or MariaDB; None for other errors.

    A driver is recognised by the module of the error's class.
    """
    for kind in type(error).__mro__:
        driver = kind.__module__.partition(".")[0]
        if driver in _SQLITE_DRIVERS:
            return _code_of_sqlite(error)
        if driver in _MYSQL_DRIVERS:
            return _code_of_mysql(error)
    return None


def _code_of_sqlite(error: BaseException) -> str:
    number = attribute(error, "sqlite_errorcode")
    if not isinstance(number, int):
        return GENERAL
    return SQLITE.get(number) or SQLITE.get(number & 0xFF, GENERAL)


def _code_of_mysql(error: BaseException) -> str:
    number = attribute(error, "errno")
    if not isinstance(number, int):
        number = next(iter(error.args), None)
    if number == _OPTION and any(_OPTIONS in str(each).replace("_", "-") for each in error.args):
        return _READ_ONLY
    return MYSQL.get(number, GENERAL) if isinstance(number, int) else GENERAL
