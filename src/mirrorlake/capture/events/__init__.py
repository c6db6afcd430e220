"""Event files as a sink: what is loaded and streamed becomes files of events elsewhere."""
