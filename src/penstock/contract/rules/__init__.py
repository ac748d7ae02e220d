"""The rules of the contract, one module per family; `table` gathers them."""
