"""Azure Data Lake Storage Gen2 and OneLake: folders that are real, and renames that are atomic.

`url.py` reads addresses and says with what right we come, `store.py` is the `Store`, `files.py`
moves the bytes, `errors.py` translates what the service says. Only `url.py` can be imported without
the extra `azure`.
"""
