"""HTTP: the API of streams in `routes.py`, pages for people in `pages/`, health and metrics in
`application.py`. All of it is thin, over `control/` and `app/streams/`."""
