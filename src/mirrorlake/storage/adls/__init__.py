"""Azure Data Lake Storage Gen2 and OneLake: real folders, and atomic renames.

`url.py` reads addresses and finds the credentials, `store.py` is the `Store`, `files.py` transfers
bytes, `errors.py` translates the errors of the service. Only `url.py` can be imported without the
extra `azure`.
"""
