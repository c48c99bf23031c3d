"""Views as text for readers: the lines and tables that commands print of the structs of `redrive.operate`."""
