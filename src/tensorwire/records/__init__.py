"""TFRecord files: framing, compression, random access, schemas, Examples as columns, repair."""
