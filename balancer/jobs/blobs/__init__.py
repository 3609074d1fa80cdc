"""Where files' bytes lie: a folder, or storage that fsspec reaches, such as S3."""
