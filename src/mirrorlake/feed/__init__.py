"""The change feed of tables.

A reader of a range is `reader.py`, which the others use; a live one is `follow.py`, one that keeps
its position `subscriptions`. An output format belongs to `writers.py`, SQL to `sql.py`, a table
that is built from the feed of another to a package beside `history` and `archive`, on `targets`.
Readers by Spark are in `spark/feed.py`, `spark/feed_stream.py` and `spark/subscription.py`.
What users call is in `app/feed.py`, `app/subscribe.py` and `app/changes`.
"""
