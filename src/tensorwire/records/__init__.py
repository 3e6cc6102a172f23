"""Record files: TFRecord framing and compression, random access, Examples as columns, schemas,
repair.
"""
