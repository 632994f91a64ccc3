"""The model in its own process: the worker's side is `supervisor` and `client`, the child's is `engine_process`; rungs and admission are elsewhere."""
