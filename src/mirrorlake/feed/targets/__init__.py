"""Tables that are built from the change feed of another table: common parts of histories, archives
and replays."""
