"""What users of the same libraries have without this product: the benchmark's two measures, each one program in one file."""
