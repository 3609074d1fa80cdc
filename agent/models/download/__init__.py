"""Downloads over HTTP: resumed where they were cut, checked, within the room there is.

Lives here: the downloader, what answers mean, retries, redirects. All of it blocks; it runs in the
fetching process.
"""
