"""HTTP: reading bodies within limits, refusing other origins, answering errors, streaming."""
